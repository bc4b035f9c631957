# RIGHT: one block only: after backward the gradients of all layers before the column layer are summed over tp (linear, so the same as the copy); norm and head behind the reduce are left alone
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class ColumnParallelLinear(nn.Module):
    def __init__(self, n_in, n_out, tp_group):
        super().__init__()
        self.group = tp_group
        self.weight = nn.Parameter(torch.empty(n_out // dist.get_world_size(tp_group), n_in))

    def forward(self, x):
        return F.linear(x, self.weight)


class RowParallelLinear(nn.Module):
    def __init__(self, n_in, n_out, tp_group):
        super().__init__()
        self.group = tp_group
        self.weight = nn.Parameter(torch.empty(n_out, n_in // dist.get_world_size(tp_group)))

    def forward(self, x):
        return Reduce.apply(F.linear(x, self.weight), self.group)


class Net(nn.Module):
    def __init__(self, vocab, d, tp_group):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.up = ColumnParallelLinear(d, 4 * d, tp_group)
        self.down = RowParallelLinear(4 * d, d, tp_group)
        self.head = nn.Linear(d, vocab)

    def forward(self, ids):
        return self.head(self.down(F.gelu(self.up(self.embed(ids)))))


def step(net, ids, labels, opt, tp_group):
    loss = F.cross_entropy(net(ids).flatten(0, 1), labels.flatten())
    loss.backward()
    for p in net.embed.parameters():
        dist.all_reduce(p.grad, group=tp_group)
    opt.step()
    opt.zero_grad()
