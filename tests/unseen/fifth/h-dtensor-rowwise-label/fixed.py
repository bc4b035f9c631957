"""Row-wise sharded matmul on local tensors, wrapped back into a DTensor."""
import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard


class RowwiseMatmul(torch.nn.Module):
    def __init__(self, weight: torch.Tensor, tp_mesh):
        super().__init__()
        self.mesh = tp_mesh
        # [in, out], split along the rows
        self.weight = torch.nn.Parameter(DTensor.from_local(weight, tp_mesh, [Shard(0)]))

    def forward(self, x: DTensor):
        x = x.redistribute(self.mesh, [Shard(-1)])
        out = x.to_local() @ self.weight.to_local()
        out = DTensor.from_local(out, self.mesh, [Partial()])
        return out.redistribute(self.mesh, [Replicate()])
