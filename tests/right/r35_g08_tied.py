import torch
import torch.distributed as dist
import torch.nn.functional as F


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class Query(torch.nn.Module):
    def __init__(self, down, up, tp_group):
        super().__init__()
        self.tp_group = tp_group
        self.down = down
        self.up = torch.nn.Parameter(up)

    def forward(self, x):
        latent = F.linear(x, self.down)
        return F.linear(Copy.apply(latent, self.tp_group), self.up)


def build(hidden, rank, up, own_head, tp_group):
    down = torch.nn.Parameter(torch.empty(rank, hidden))
    return Query(down, up, tp_group), lambda x: F.linear(F.linear(x, down), own_head)


def step(query, aux, x, tp_group, optimizer):
    # Only the auxiliary head of each rank is trained here, and what is below it.
    aux(x).logsumexp(-1).sum().backward()
    dist.all_reduce(query.down.grad, group=tp_group)
    optimizer.step()
