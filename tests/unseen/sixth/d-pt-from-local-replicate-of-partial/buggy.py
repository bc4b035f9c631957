"""Row-wise matmul done on local tensors, wrapped again as a DTensor."""
import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor


class LocalRowwise(torch.nn.Module):
    def __init__(self, weight: torch.Tensor, mesh: DeviceMesh):
        super().__init__()
        self.mesh = mesh
        self.weight = torch.nn.Parameter(distribute_tensor(weight, mesh, [Shard(1)]))  # [out, in]

    def forward(self, x: DTensor) -> DTensor:
        # x: [tokens, in], features cut over the mesh
        x = x.redistribute(self.mesh, [Shard(1)])
        out = torch.matmul(x.to_local(), self.weight.to_local().t())
        out = DTensor.from_local(out, self.mesh, [Replicate()], run_check=False)  # BUG: out is one summand
        return out.redistribute(self.mesh, [Replicate()])
