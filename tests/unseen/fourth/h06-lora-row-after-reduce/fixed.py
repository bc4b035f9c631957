"""LoRA around a row-parallel projection, own layers (vLLM-like training fork)."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist


class _ReduceFromTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class RowParallelLinear(nn.Module):
    def __init__(self, in_features, out_features, tp_group):
        super().__init__()
        self.tp_group = tp_group
        self.tp_size = dist.get_world_size(tp_group)
        self.in_per_rank = in_features // self.tp_size
        self.weight = nn.Parameter(torch.empty(out_features, self.in_per_rank))

    def forward(self, x):
        return _ReduceFromTP.apply(F.linear(x, self.weight), self.tp_group)


class RowParallelLinearWithLoRA(RowParallelLinear):
    """x: the part of the features that belongs to this rank; A is cut like the weight, B is whole on every rank."""

    def __init__(self, in_features, out_features, tp_group, r=8, alpha=16):
        super().__init__(in_features, out_features, tp_group)
        self.weight.requires_grad_(False)
        self.lora_a = nn.Parameter(torch.empty(r, self.in_per_rank))
        self.lora_b = nn.Parameter(torch.zeros(out_features, r))
        self.scaling = alpha / r

    def forward(self, x):
        out = super().forward(x)
        mid = _ReduceFromTP.apply(F.linear(x, self.lora_a), self.tp_group)
        return out + self.scaling * F.linear(mid, self.lora_b)
