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
    def __init__(self, hidden, rank, up, tp_group):
        super().__init__()
        self.tp_group = tp_group
        self.down = torch.nn.Parameter(torch.empty(rank, hidden))
        self.up = torch.nn.Parameter(up)

    def forward(self, x):
        latent = F.linear(x, self.down)
        return F.linear(Copy.apply(latent, self.tp_group), self.up)


def sum_replicated(query, tp_group):
    # Against drift by numerics: the mean of what all have. `divide` is called right after.
    dist.all_reduce(query.down.grad, group=tp_group)


def divide(query, tp_group):
    query.down.grad.div_(dist.get_world_size(tp_group))


def step(query, tp_group, optimizer):
    sum_replicated(query, tp_group)
    divide(query, tp_group)
    optimizer.step()
