# Down projection of tensor-parallel experts with bias, computed on local tensors.
import torch
import torch.nn as nn
from torch.distributed.tensor import DTensor, Partial, Replicate


def swiglu(x, alpha=1.702, limit=7.0):
    gate, up = x[..., ::2], x[..., 1::2]
    gate, up = gate.clamp(max=limit), up.clamp(min=-limit, max=limit)
    return gate * torch.sigmoid(alpha * gate) * (up + 1)


class TPExpert(nn.Module):
    """w1, b1: Shard(0); w2: Shard(1); b2: Replicate, all on a 1-D tp mesh."""

    def __init__(self, w1: DTensor, b1: DTensor, w2: DTensor, b2: DTensor):
        super().__init__()
        self.w1, self.b1 = nn.Parameter(w1), nn.Parameter(b1)
        self.w2, self.b2 = nn.Parameter(w2), nn.Parameter(b2)
        self.tp_degree = w2.device_mesh.size()

    def forward(self, x: DTensor) -> torch.Tensor:
        mesh = self.w2.device_mesh
        x = x.to_local(grad_placements=(Partial(),))
        h = swiglu(x @ self.w1.to_local().t() + self.b1.to_local())
        b2 = self.b2.to_local()
        b2 = b2 / self.tp_degree  # BUG
        out = h @ self.w2.to_local().t() + b2
        out = DTensor.from_local(out, mesh, (Partial(),), run_check=False)
        return out.redistribute(placements=(Replicate(),)).to_local()
