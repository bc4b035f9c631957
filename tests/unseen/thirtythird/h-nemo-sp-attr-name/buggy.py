"""All-reduce of layer-norm gradients under sequence parallelism.

Source: https://github.com/NVIDIA-NeMo/Speech/pull/7184
Wrong: the norm sets sequence_parallel_enabled on its parameters, the reduction looks for
sequence_parallel: no parameter matches, nothing is reduced.
Repair: accept the attribute that the norms set.
"""
import torch
from apex.transformer import parallel_state
from apex.normalization import FusedLayerNorm


class LayerNorm1P(FusedLayerNorm):
    def __init__(self, hidden_size, eps=1e-5, sequence_parallel_enabled=False):
        super().__init__(hidden_size, eps=eps)
        # the input is this tensor-parallel rank's part of the sequence if enabled
        setattr(self.weight, "sequence_parallel_enabled", sequence_parallel_enabled)
        setattr(self.bias, "sequence_parallel_enabled", sequence_parallel_enabled)


class MegatronGPTModel:
    def __init__(self, cfg, model, megatron_amp_o2):
        self.cfg, self.model, self.megatron_amp_o2 = cfg, model, megatron_amp_o2

    def _append_sequence_parallel_module_grads(self, module, grads):
        for param in module.parameters():
            sequence_parallel_param = getattr(param, "sequence_parallel", False)  # BUG: nobody sets this name
            if sequence_parallel_param and param.requires_grad:
                grad = param.main_grad if self.megatron_amp_o2 else param.grad
                grads.append(grad.data)

    def allreduce_sequence_parallel_gradients(self):
        grads = []
        self._append_sequence_parallel_module_grads(self.model, grads)
        if not grads:
            return
        coalesced = torch._utils._flatten_dense_tensors(grads)
        torch.distributed.all_reduce(coalesced, group=parallel_state.get_tensor_model_parallel_group())
        for buf, synced in zip(grads, torch._utils._unflatten_dense_tensors(coalesced, grads)):
            buf.copy_(synced)

    def training_step(self, batch, fwd_bwd):
        loss = fwd_bwd(batch)
        if self.cfg.get("tensor_model_parallel_size", 1) > 1 and self.cfg.get("sequence_parallel", False):
            self.allreduce_sequence_parallel_gradients()
        return loss
