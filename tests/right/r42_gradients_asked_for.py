import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad):
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class Heads(nn.Module):
    def __init__(self, dim, n_heads, tp_group):
        super().__init__()
        self.tp_group = tp_group
        self.head_dim = dim // n_heads
        self.heads = n_heads // dist.get_world_size(tp_group)
        self.wq = nn.Linear(dim, self.heads * self.head_dim, bias=False)
        self.q_norm = nn.RMSNorm(self.head_dim)

    def forward(self, x):
        q = self.wq(Copy.apply(x, self.tp_group))
        return self.q_norm(q.unflatten(-1, (self.heads, self.head_dim)))


def step(model, loss, group, lr):
    params = dict(model.named_parameters())
    for (n, p), g in zip(params.items(), torch.autograd.grad(loss, list(params.values()))):
        if "q_norm" in n:
            dist.all_reduce(g, group=group)
        p.data.add_(g, alpha=-lr)
