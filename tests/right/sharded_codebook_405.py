"""Prototypes sharded over ranks; features gathered by all_gather + all_reduce backward times world for DDP."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class GatherX(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(out, x.contiguous())
        return torch.cat(out)

    @staticmethod
    def backward(ctx, g):
        n = dist.get_world_size()
        g = g.contiguous()
        dist.all_reduce(g)
        return g.chunk(n)[dist.get_rank()] * n


class Prototypes(nn.Module):
    """score = sum over prototypes of softplus(x . p); each rank holds some of the prototypes."""

    def __init__(self, dim, k):
        super().__init__()
        self.p = nn.Parameter(torch.randn(k // dist.get_world_size(), dim))

    def forward(self, x):
        x = GatherX.apply(x)
        return F.softplus(x @ self.p.t()).sum(-1).mean()


def train(net, protos, loader, lr):
    ddp = nn.parallel.DistributedDataParallel(net)
    opt = torch.optim.AdamW([{"params": ddp.parameters()}, {"params": protos.parameters(), "weight_decay": 0.0}], lr=lr)
    for x in loader:
        # loss of all prototypes = sum of the ranks' parts; each rank differentiates its own part
        part = protos(ddp(x))
        opt.zero_grad()
        part.backward()
        opt.step()
        shown = part.detach().clone()
        dist.all_reduce(shown)
        if dist.get_rank() == 0:
            print(shown.item())
