"""Feed-forward block: DTensor outside, plain tensors inside."""
import torch
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard


class FeedForward(torch.nn.Module):
    def __init__(self, dim, hidden_dim, tp_mesh):
        super().__init__()
        self.tp_mesh = tp_mesh
        local = hidden_dim // tp_mesh.size()
        self.w1 = torch.nn.Parameter(torch.empty(local, dim))
        self.w3 = torch.nn.Parameter(torch.empty(local, dim))
        self.w2 = torch.nn.Parameter(torch.empty(dim, local))

    def forward(self, x: DTensor) -> DTensor:
        # x: (batch, seq, dim), Shard(1) on the tensor-parallel mesh
        x = x.redistribute(placements=[Replicate()])
        x = x.to_local(grad_placements=[Partial()])
        h = F.silu(F.linear(x, self.w1)) * F.linear(x, self.w3)
        out = F.linear(h, self.w2)
        out = DTensor.from_local(out, self.tp_mesh, [Replicate()], run_check=False)  # BUG: each rank holds one addend
        return out.redistribute(placements=[Shard(1)])
