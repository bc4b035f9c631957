"""Reduction of layer-norm gradients over the tensor-parallel group.

Source: https://github.com/NVIDIA-NeMo/Speech/pull/7184
"""
import torch
from apex.contrib.layer_norm import FastLayerNorm as OrigFastLayerNorm
from megatron.core import parallel_state
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


class FastLayerNorm(OrigFastLayerNorm):
    def __init__(self, hidden_size, eps=1e-5, *, sequence_parallel_enabled=False):
        super().__init__(hidden_size=hidden_size, eps=eps)
        for p in self.parameters():
            setattr(p, "sequence_parallel_enabled", sequence_parallel_enabled)


class MegatronGPTModel:
    def __init__(self, cfg, model):
        self.cfg, self.model = cfg, model

    def allreduce_sequence_parallel_gradients(self):
        """[s/tp, b, h] enters the layer norms when cfg.sequence_parallel is set."""
        grads = []
        for param in self.model.parameters():
            if getattr(param, "sequence_parallel", False):  # BUG
                grads.append(param.main_grad.data if self.cfg.megatron_amp_O2 else param.grad.data)
        if not grads:
            return
        coalesced = _flatten_dense_tensors(grads)
        torch.distributed.all_reduce(coalesced, group=parallel_state.get_tensor_model_parallel_group())
        for buf, synced in zip(grads, _unflatten_dense_tensors(coalesced, grads)):
            buf.copy_(synced)

    def training_step(self, fwd_bwd, batch):
        loss = fwd_bwd(batch)
        if self.cfg.tensor_model_parallel_size > 1 and self.cfg.sequence_parallel:
            self.allreduce_sequence_parallel_gradients()
        return loss
