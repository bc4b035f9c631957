"""Row-wise linear on local tensors with a replicated bias (pytorch/torchtitan#4332)."""
import torch
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial, Replicate


class RowwiseLinear(torch.nn.Module):
    def __init__(self, weight: DTensor, bias: DTensor):
        super().__init__()
        self.weight = torch.nn.Parameter(weight)  # Shard(1) on tp
        self.bias = torch.nn.Parameter(bias)  # Replicate on tp

    def forward(self, x_local):
        # x_local: last dim sharded over TP
        mesh = self.weight.device_mesh
        bias = self.bias.to_local()
        bias = bias + (bias / mesh.size() - bias).detach()
        out = F.linear(x_local, self.weight.to_local(), bias)
        out = DTensor.from_local(out, mesh, [Partial()], run_check=False)
        return out.redistribute(placements=[Replicate()]).to_local()
