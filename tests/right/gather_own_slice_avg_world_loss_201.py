# Right: loss of gathered rows, own slice back, grad * n then AVG = sum.
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class RowsOf(torch.autograd.Function):
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


class Objective(nn.Module):
    def forward(self, z):
        z = RowsOf.apply(z)
        z = (z - z.mean(0)) / (z.std(0) + 1e-5)
        c = z.T @ z / len(z)
        return (c - torch.eye(c.shape[0], device=c.device)).square().mean()


def train(net, loader, opt):
    objective = Objective()
    n = dist.get_world_size()
    for x in loader:
        opt.zero_grad()
        loss = objective(net(x))
        loss.backward()
        for p in net.parameters():
            p.grad.mul_(n)
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
        opt.step()
