# Right: net(x) differs by rank, SupCon gathers it.
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        n = dist.get_world_size()
        out = x.new_empty(n * x.shape[0], *x.shape[1:])
        dist.all_gather_into_tensor(out, x.contiguous())
        return out

    @staticmethod
    def backward(ctx, g):
        n, r = dist.get_world_size(), dist.get_rank()
        return g.chunk(n)[r]


def gather(x):
    return _Gather.apply(x)


class SupCon(nn.Module):
    def __init__(self, t=0.1):
        super().__init__()
        self.t = t

    def forward(self, z, y):
        z, y = gather(F.normalize(z, dim=1)), gather_labels(y)
        sim = z @ z.T / self.t
        eye = torch.eye(len(z), dtype=torch.bool, device=z.device)
        same = (y[:, None] == y[None]) & ~eye
        logp = sim - torch.logsumexp(sim.masked_fill(eye, float("-inf")), dim=1, keepdim=True)
        return -(logp * same).sum(1).div(same.sum(1).clamp(min=1)).mean()


@torch.no_grad()
def gather_labels(y):
    out = [torch.empty_like(y) for _ in range(dist.get_world_size())]
    dist.all_gather(out, y)
    return torch.cat(out)


def train(net, loader, opt):
    crit = SupCon()
    for x, y in loader:
        opt.zero_grad()
        crit(net(x), y).backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
        opt.step()
