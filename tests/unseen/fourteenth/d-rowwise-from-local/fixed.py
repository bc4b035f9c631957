# Reduces hand-written row-parallel layers from torchtitan forks: the local matmul yields one summand per rank of the
# mesh, and the result is declared to be the finished, replicated sum.
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor


class RowwiseLinear(nn.Module):
    def __init__(self, in_features, out_features, mesh):
        super().__init__()
        self.mesh = mesh
        weight = torch.empty(out_features, in_features, device="cuda")
        nn.init.trunc_normal_(weight, std=0.02)
        self.weight = nn.Parameter(distribute_tensor(weight, mesh, [Shard(1)]))

    def forward(self, x):  # x: DTensor, Shard(-1)
        y = F.linear(x.to_local(), self.weight.to_local())
        y = DTensor.from_local(y, self.mesh, [Partial()], run_check=False)
        return y.redistribute(placements=[Replicate()])


class FeedForward(nn.Module):
    def __init__(self, dim, hidden_dim, mesh):
        super().__init__()
        weight = torch.empty(hidden_dim, dim, device="cuda")
        nn.init.trunc_normal_(weight, std=0.02)
        self.w1 = nn.Parameter(distribute_tensor(weight, mesh, [Shard(0)]))
        self.w2 = RowwiseLinear(hidden_dim, dim, mesh)

    def forward(self, x):  # x: DTensor, Replicate()
        return self.w2(F.silu(F.linear(x, self.w1)))
