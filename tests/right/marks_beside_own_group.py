import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class _ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        out = x.new_empty((x.size(0) // group.size(),) + x.shape[1:])
        dist.reduce_scatter_tensor(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, g):
        out = g.new_empty((g.size(0) * ctx.group.size(),) + g.shape[1:])
        dist.all_gather_into_tensor(out, g.contiguous(), group=ctx.group)
        return out, None


def set_tensor_model_parallel_attributes(tensor, is_parallel, dim):
    tensor.tensor_model_parallel = is_parallel
    tensor.partition_dim = dim


class RowParallelLinear(nn.Module):
    def __init__(self, n_in, n_out, tp_group):
        super().__init__()
        self.tp_group = tp_group
        self.weight = nn.Parameter(torch.empty(n_out, n_in // tp_group.size()))
        set_tensor_model_parallel_attributes(self.weight, True, 1)
        self.bias = nn.Parameter(torch.zeros(n_out))
        setattr(self.bias, "sequence_parallel", True)

    def forward(self, x):
        return _ReduceScatter.apply(F.linear(x, self.weight), self.tp_group) + self.bias


def finalize(model, tp_group):
    for p in model.parameters():
        if getattr(p, "sequence_parallel", False):
            dist.all_reduce(p.grad, group=tp_group)
