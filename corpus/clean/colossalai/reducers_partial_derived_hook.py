"""Sequence parallelism of shardformer: norms and row biases are marked, their gradients are summed by a strategy or by hooks."""

import torch
import torch.distributed as dist
import torch.nn as nn


class SeqParallelUtils:
    @staticmethod
    def marked_as_partial_derived(param):
        return getattr(param, "partial_derived", False)

    @staticmethod
    def mark_partial_derived(param):
        setattr(param, "partial_derived", True)

    @staticmethod
    def allreduce_partial_data_grad(process_group, model=None, grads=None):
        if dist.get_world_size(process_group) == 1:
            return
        if model is not None:
            grads = [
                p.grad.data
                for p in model.parameters()
                if p.grad is not None and SeqParallelUtils.marked_as_partial_derived(p)
            ]
        if not grads:
            return
        flattened = torch._utils._flatten_dense_tensors(grads)
        dist.all_reduce(flattened, op=dist.ReduceOp.SUM, group=process_group)
        for grad, synced in zip(grads, torch._utils._unflatten_dense_tensors(flattened, grads)):
            grad.copy_(synced)


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6, sp_partial_derived=False):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))
        if sp_partial_derived:
            SeqParallelUtils.mark_partial_derived(self.weight)

    def forward(self, x):
        return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + self.eps).to(x.dtype) * self.weight


class DecoderLayer(nn.Module):
    def __init__(self, config, attention, mlp, sp_mode):
        super().__init__()
        partial = sp_mode in ("split_gather", "ring")
        self.self_attn, self.mlp = attention, mlp
        self.input_layernorm = RMSNorm(config.hidden_size, sp_partial_derived=partial)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, sp_partial_derived=partial)

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class HybridOptimizer:
    def __init__(self, optim, model, tp_group, sp_mode, master_grads=False):
        self.optim, self.model, self.tp_group = optim, model, tp_group
        self.should_sum = sp_mode in ("split_gather", "ring")

    def backward(self, loss):
        loss.backward()
        if self.should_sum:
            SeqParallelUtils.allreduce_partial_data_grad(self.tp_group, model=self.model)

    def step(self):
        self.optim.step()
