"""Feed-forward block with row-wise tensor parallelism and a replicated bias.

After pytorch/torchtitan PR #4332 (torchtitan/models/common/linear.py).
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor


class ColwiseLinear(nn.Module):
    def __init__(self, in_features, out_features, mesh: DeviceMesh):
        super().__init__()
        self.mesh = mesh
        weight = torch.empty(out_features, in_features, device=mesh.device_type)
        nn.init.normal_(weight, std=0.02)
        self.weight = nn.Parameter(distribute_tensor(weight, mesh, [Shard(0)]))
        bias = torch.zeros(out_features, device=mesh.device_type)
        self.bias = nn.Parameter(distribute_tensor(bias, mesh, [Shard(0)]))

    def forward(self, x):
        # x is replicated over TP; each rank adds a contribution to its gradient
        x = DTensor.from_local(x, self.mesh, [Replicate()], run_check=False)
        x = x.to_local(grad_placements=[Partial()])
        return F.linear(x, self.weight.to_local(), self.bias.to_local())


class RowwiseLinear(nn.Module):
    """The local outputs are partial sums, so the bias is spread over the ranks."""

    def __init__(self, in_features, out_features, mesh: DeviceMesh):
        super().__init__()
        self.mesh, self.tp_degree = mesh, mesh.size()
        weight = torch.empty(out_features, in_features, device=mesh.device_type)
        nn.init.normal_(weight, std=0.02)
        self.weight = nn.Parameter(distribute_tensor(weight, mesh, [Shard(1)]))
        bias = torch.zeros(out_features, device=mesh.device_type)
        self.bias = nn.Parameter(distribute_tensor(bias, mesh, [Replicate()]))

    def forward(self, x):
        bias = self.bias.to_local()
        bias = bias / self.tp_degree  # BUG: scales the gradient of the replicated bias as well
        out = F.linear(x, self.weight.to_local(), bias)
        out = DTensor.from_local(out, self.mesh, [Partial()], run_check=False)
        return out.redistribute(placements=[Replicate()]).to_local()


class FeedForward(nn.Module):
    def __init__(self, dim, hidden_dim, mesh: DeviceMesh):
        super().__init__()
        self.w1 = ColwiseLinear(dim, hidden_dim, mesh)
        self.w2 = RowwiseLinear(hidden_dim, dim, mesh)

    def forward(self, x):
        return self.w2(F.gelu(self.w1(x)))
