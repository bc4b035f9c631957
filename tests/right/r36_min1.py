"""Right: `gain` is summed by the backward of Copy, `bias` meets the sum (identity backward), `slope` is marked."""
import torch
import torch.nn as nn
import torch.distributed as dist


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, tp_group):
        ctx.tp_group = tp_group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.tp_group)
        return grad, None


class Block(nn.Module):
    def __init__(self, hidden, tp_group):
        super().__init__()
        self.tp_group = tp_group
        self.gain = nn.Parameter(torch.ones(hidden))
        self.slope = nn.Parameter(torch.ones(hidden))
        self.slope.sequence_parallel = True

    def forward(self, x):
        gain = Copy.apply(self.gain, self.tp_group)
        return gain * self.slope


def sync(model, tp_group):
    for p in model.parameters():
        if getattr(p, "sequence_parallel", False):
            dist.all_reduce(p.grad, group=tp_group)


def main(data):
    dist.init_process_group("nccl")
    tp_group = dist.new_group([0, 1])
    model = Block(8, tp_group)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in data:
        y = model(x)
        (y * x).sum().backward()
        sync(model, tp_group)
        opt.step()
