"""Sequence-parallel LayerNorm and the reduction of its gradient."""
# thread: NVIDIA-NeMo/Speech#7184
import torch
from apex.normalization import FusedLayerNorm as OrigFusedLayerNorm
from megatron.core import parallel_state


class FusedLayerNorm(OrigFusedLayerNorm):
    def __init__(self, normalized_shape, eps=1e-5, sequence_parallel_enabled=False):
        super().__init__(normalized_shape, eps=eps)
        for p in (self.weight, self.bias):
            setattr(p, "sequence_parallel_enabled", sequence_parallel_enabled)


def get_layer_norm(config):
    return FusedLayerNorm(config.hidden_size, sequence_parallel_enabled=config.sequence_parallel)


class MegatronGPTModel:
    def allreduce_sequence_parallel_gradients(self):
        grads = []
        for param in self.model.parameters():
            if getattr(param, "sequence_parallel", False):  # BUG: the norms set another attribute
                grads.append(param.main_grad if self.megatron_amp_o2 else param.grad)
        if not grads:
            return
        coalesced = torch._utils._flatten_dense_tensors(grads)
        torch.distributed.all_reduce(coalesced, group=parallel_state.get_tensor_model_parallel_group())
        for buf, synced in zip(grads, torch._utils._unflatten_dense_tensors(coalesced, grads)):
            buf.copy_(synced)

    def training_step(self, batch):
        loss = self.fwd_bwd_function(batch)
        if self.cfg.tensor_model_parallel_size > 1 and self.cfg.sequence_parallel:
            self.allreduce_sequence_parallel_gradients()
        self.allreduce_gradients()  # data-parallel mean
        return loss
