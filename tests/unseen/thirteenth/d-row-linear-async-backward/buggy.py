# Row-parallel linear in reduce-scatter mode with communication inside the autograd function.
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


def _all_gather_first_dim(x, group):
    out = x.new_empty((x.shape[0] * group.size(), *x.shape[1:]))
    dist.all_gather_into_tensor(out, x.contiguous(), group=group)
    return out


class _RowLinearReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, weight, group):
        # tensor: [s, in / tp], weight: [out, in / tp] -> [s / tp, out]
        ctx.save_for_backward(tensor, weight)
        ctx.group = group
        partial = F.linear(tensor, weight)
        out = partial.new_empty((partial.shape[0] // group.size(), partial.shape[1]))
        dist.reduce_scatter_tensor(out, partial.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad_output):
        tensor, weight = ctx.saved_tensors
        total_grad_output = _all_gather_first_dim(grad_output, ctx.group)
        grad_weight = total_grad_output.t() @ tensor
        grad_tensor = _all_gather_first_dim(grad_output @ weight, ctx.group)  # BUG
        return grad_tensor, grad_weight, None


class TensorParallelRowLinear(nn.Module):
    def __init__(self, in_features, out_features, pg):
        super().__init__()
        self.pg = pg
        self.weight = nn.Parameter(torch.empty(out_features, in_features // pg.size()))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x):
        return _RowLinearReduceScatter.apply(x, self.weight, self.pg)
