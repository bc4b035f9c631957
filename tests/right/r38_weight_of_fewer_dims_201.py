"""SPMD201 false: `omega` is (D/tp, 1), x is (B, D/tp, L): their product is split on dim 1, as the gather takes it."""
import torch
from torch import nn
from megatron.core.parallel_state import get_tensor_model_parallel_group, get_tensor_model_parallel_rank, get_tensor_model_parallel_world_size


def _split(x, dim):
    n = get_tensor_model_parallel_world_size()
    return torch.split(x, x.size(dim) // n, dim)[get_tensor_model_parallel_rank()].contiguous()


def _gather(x, dim):
    parts = [torch.empty_like(x) for _ in range(get_tensor_model_parallel_world_size())]
    torch.distributed.all_gather(parts, x, group=get_tensor_model_parallel_group())
    return torch.cat(parts, dim=dim)


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim):
        ctx.dim = dim
        return _gather(x, dim)

    @staticmethod
    def backward(ctx, g):
        return _split(g, ctx.dim), None


class Scale(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim_per_partition = dim // get_tensor_model_parallel_world_size()
        self.omega = nn.Parameter(torch.Tensor(self.dim_per_partition, 1))

    def forward(self, x):
        bsz, _, seq_len = x.size()  # B x D/tp x L
        return Gather.apply(x * self.omega, 1)
