"""A switch that is accepted for the interface and refused unless it is off; another is read by the reducer."""
import torch
import torch.distributed as dist
import torch.nn as nn


class Base(nn.Module):
    def __init__(self, sequence_parallel=False, **kwargs):
        super().__init__()
        self.sequence_parallel = sequence_parallel


class Norm(Base):
    def __init__(self, dim, **kwargs):
        super().__init__(**kwargs)
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Row(nn.Module):
    def __init__(self, inner, dim, group, sequence_parallel=False):
        super().__init__()
        if sequence_parallel:
            raise NotImplementedError("this layer gives whole sequences")
        self.group = group
        self.weight = nn.Parameter(torch.empty(dim, inner // dist.get_world_size(group)))

    @torch.no_grad()
    def forward(self, x):
        y = x @ self.weight.t()
        dist.all_reduce(y, group=self.group)
        return y


def reduce_marked(model, tp_group):
    for m in model.modules():
        if getattr(m, "sequence_parallel", False):
            for p in m.parameters(recurse=False):
                if p.grad is not None:
                    dist.all_reduce(p.grad, group=tp_group)


def step(model, loss, optimizer, tp_group, dp_group):
    loss.backward()
    reduce_marked(model, tp_group)
    for p in model.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=dp_group)
    optimizer.step()
    optimizer.zero_grad()
