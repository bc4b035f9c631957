"""Right: bias meets the sum (all-reduce forward, identity backward)."""
import torch
import torch.nn as nn
import torch.distributed as dist


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, tp_group):
        x = x.clone()
        dist.all_reduce(x, group=tp_group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class Row(nn.Module):
    def __init__(self, hidden, tp_group):
        super().__init__()
        self.tp_group = tp_group
        self.weight = nn.Parameter(torch.zeros(hidden, hidden // dist.get_world_size(tp_group)))
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.slope = nn.Parameter(torch.ones(()))
        self.slope.sequence_parallel = True

    def forward(self, x):
        x = nn.functional.linear(x * self.slope, self.weight)
        return Reduce.apply(x, self.tp_group) + self.bias


def sync(model, tp_group):
    for p in model.parameters():
        if getattr(p, "sequence_parallel", False):
            dist.all_reduce(p.grad, group=tp_group)


def main(data):
    dist.init_process_group("nccl")
    tp_group = dist.new_group([0, 1])
    model = Row(8, tp_group)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in data:
        x = x.chunk(2, dim=-1)[dist.get_rank(tp_group)]
        model(x).sum().backward()
        sync(model, tp_group)
        opt.step()
