"""Tensor-parallel layers on functional collectives inside autograd functions, one pair for each conversion."""

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.nn as nn
import torch.nn.functional as F


class _CopyTo(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return funcol.wait_tensor(funcol.all_reduce(grad.contiguous(), "sum", ctx.group)), None


class _ReduceFrom(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        return funcol.wait_tensor(funcol.all_reduce(x.contiguous(), reduceOp="sum", group=group))

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class _GatherSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group, dim):
        ctx.group, ctx.dim = group, dim
        return funcol.all_gather_tensor(x.contiguous(), gather_dim=dim, group=group)

    @staticmethod
    def backward(ctx, grad):
        return funcol.reduce_scatter_tensor(grad.contiguous(), "sum", scatter_dim=ctx.dim, group=ctx.group), None, None


class _ScatterSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group, dim):
        ctx.group, ctx.dim = group, dim
        return funcol.reduce_scatter_tensor(x.contiguous(), "sum", scatter_dim=dim, group=group)

    @staticmethod
    def backward(ctx, grad):
        return funcol.all_gather_tensor(grad.contiguous(), gather_dim=ctx.dim, group=ctx.group), None, None


class FeedForward(nn.Module):
    def __init__(self, hidden, inner_per_rank, mesh, sequence_parallel=False, dropout=0.0):
        super().__init__()
        self.group = mesh.get_group("tp")
        self.sequence_parallel = sequence_parallel
        self.w1 = nn.Parameter(torch.empty(inner_per_rank, hidden))  # spmd: {tp: S(0)}
        self.w2 = nn.Parameter(torch.empty(hidden, inner_per_rank))  # spmd: {tp: S(1)}
        self.dropout = nn.Dropout(dropout)

    # spmd: x: {tp: S(1) if sequence_parallel else I} -> {tp: S(1) if sequence_parallel else I}
    def forward(self, x):
        if self.sequence_parallel:
            x = _GatherSequence.apply(x, self.group, 1)
        else:
            x = _CopyTo.apply(x, self.group)
        hidden = self.dropout(F.relu(F.linear(x, self.w1)).square())
        out = F.linear(hidden, self.w2)
        if self.sequence_parallel:
            return _ScatterSequence.apply(out, self.group, 1)
        return _ReduceFrom.apply(out, self.group)


@torch.inference_mode()
def generate(model, ids, steps, group):
    for _ in range(steps):
        logits = funcol.all_gather_tensor(model(ids)[:, -1], gather_dim=-1, group=group)
        ids = torch.cat([ids, logits.argmax(dim=-1, keepdim=True)], dim=1)
        dist.broadcast(ids, src=0)
    return ids
