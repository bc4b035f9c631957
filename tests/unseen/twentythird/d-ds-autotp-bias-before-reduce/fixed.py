"""Row-parallel replacement of a linear layer for tensor-parallel training."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class RowParallel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, x):
        x = x.contiguous().clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad_output):
        return None, grad_output


class LinearAllreduce(nn.Module):
    def __init__(self, module, mp_group):
        super().__init__()
        rank, size = dist.get_rank(mp_group), dist.get_world_size(mp_group)
        self.weight = nn.Parameter(module.weight.data.chunk(size, dim=1)[rank].contiguous())
        self.bias = nn.Parameter(module.bias.data) if module.bias is not None else None
        self.mp_group = mp_group

    def forward(self, x):
        # x: last dimension sharded over mp_group
        out = F.linear(x, self.weight)
        out = RowParallel.apply(self.mp_group, out)
        if self.bias is not None:
            out = out + self.bias
        return out
