# Right: as gather_slice_module_sum, with cross_entropy.
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class AllGatherOwn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.rank, ctx.rows = dist.get_rank(), x.shape[0]
        out = x.new_empty((dist.get_world_size() * x.shape[0],) + x.shape[1:])
        dist.all_gather_into_tensor(out, x.contiguous())
        return out

    @staticmethod
    def backward(ctx, g):
        return g[ctx.rank * ctx.rows : (ctx.rank + 1) * ctx.rows]


def all_rows(x):
    return AllGatherOwn.apply(x)


class InfoNCE(nn.Module):
    def __init__(self, t):
        super().__init__()
        self.t = t

    def forward(self, q, k):
        q, k = all_rows(F.normalize(q, dim=-1)), all_rows(F.normalize(k, dim=-1))
        scores = q @ k.T / self.t
        return F.cross_entropy(scores, torch.arange(len(q), device=q.device))


def train(net, loader, opt, t):
    crit = InfoNCE(t)
    for a, b in loader:
        opt.zero_grad()
        loss = crit(net(a), net(b))
        loss.backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
        opt.step()
