"""Sequence-parallel gather whose reduce-scatter is scaled since the gradient hook averages over tp as well."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class GatherSeq(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        n = dist.get_world_size(group)
        out = x.new_empty((n * x.size(0),) + tuple(x.shape[1:]))
        dist.all_gather_into_tensor(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, g):
        n = dist.get_world_size(ctx.group)
        out = g.new_empty((g.size(0) // n,) + tuple(g.shape[1:]))
        dist.reduce_scatter_tensor(out, g.contiguous(), group=ctx.group)
        # replicated trunk parameters are averaged over the whole world (dp x tp) by DDP
        return out * n, None


class SumOut(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        y = x.clone()
        dist.all_reduce(y, group=group)
        return y

    @staticmethod
    def backward(ctx, g):
        return g, None


class TPHead(nn.Module):
    """Hidden units of the head are sharded over tp; its gradients are averaged over dp only."""

    def __init__(self, d, h, group):
        super().__init__()
        self.group = group
        n = dist.get_world_size(group)
        self.a = nn.Linear(d, h // n)
        self.b = nn.Linear(h // n, 1, bias=False)

    def forward(self, x):
        h = GatherSeq.apply(x, self.group)
        return SumOut.apply(self.b(F.gelu(self.a(h))), self.group).squeeze(-1)


def train(trunk, head, loader, tp, dp):
    body = nn.parallel.DistributedDataParallel(trunk)
    top = nn.parallel.DistributedDataParallel(head, process_group=dp)
    opt = torch.optim.AdamW(list(body.parameters()) + list(top.parameters()))
    r, n = dist.get_rank(tp), dist.get_world_size(tp)
    for x, y in loader:
        # ranks of a tp group read the same batch; the trunk takes a part of it
        feats = body(x.chunk(n, 0)[r])
        loss = F.mse_loss(top(feats), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
