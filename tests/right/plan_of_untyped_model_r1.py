# two models with the same names in one file; the plan is for the other one
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class MLP(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w1 = nn.Linear(dim, hidden)
        self.w2 = nn.Linear(dim, hidden)
        self.w3 = nn.Linear(hidden, dim)

    def forward(self, x):
        return self.w3(F.silu(self.w1(x)) * self.w2(x))


def apply_tp(model, mesh):
    for layer in model.layers:
        parallelize_module(layer.mlp, mesh, {"w1": ColwiseParallel(), "w2": ColwiseParallel(), "w3": RowwiseParallel()})


def apply_more(model: nn.Module, mesh, enable_sp=False):
    plan = {"w1": ColwiseParallel(), "w2": ColwiseParallel()}
    parallelize_module(model, mesh, plan)
    parallelize_module(model, mesh, {"w3": RowwiseParallel(output_layouts=Shard(1) if enable_sp else Replicate())})


def apply_by_hand(model, mesh):
    parallelize_module(model, mesh, {"w1": ColwiseParallel(), "w2": ColwiseParallel()})
    model.w3 = RowParallel(model.w3, mesh)
