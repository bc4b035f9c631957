"""Experts in a wrapper over fewer ranks: the missing factor is put on in a hook of their gradients."""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


class MoEModel(nn.Module):
    def __init__(self, dense, experts):
        super().__init__()
        self.dense, self.experts = dense, experts

    def forward(self, x):
        return self.experts(self.dense(x))


def split(model):
    experts = {id(p) for p in model.experts.parameters()}
    return [p for p in model.parameters() if id(p) not in experts], list(model.experts.parameters())


class TwoGroupReducer:
    """AVG over each kind's own ranks, experts divided further by the expert-parallel size in their hooks."""

    def __init__(self, model, dp_group, edp_group):
        self.dense, self.experts = split(model)
        self.dp_group, self.edp_group = dp_group, edp_group
        ep = dist.get_world_size(dp_group) // dist.get_world_size(edp_group)
        for p in self.experts:
            # tokens of all dp ranks arrive here
            p.register_hook(lambda g, ep=ep: g / ep)

    def __call__(self):
        for p in self.dense:
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=self.dp_group)
        for p in self.experts:
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=self.edp_group)


def train(model, loader, dp_group, edp_group):
    reduce = TwoGroupReducer(model, dp_group, edp_group)
    optimizer = torch.optim.AdamW(model.parameters())
    for x, y in loader:
        nn.functional.cross_entropy(model(x), y).backward()
        reduce()
        optimizer.step()
        optimizer.zero_grad()
