"""Expert feed-forward with biases under tensor parallelism."""
import torch
import torch.nn as nn
from torch.distributed.tensor import DTensor, Partial, Replicate


def swiglu(x, limit=7.0):
    gate, up = x.chunk(2, dim=-1)
    gate = gate.clamp(max=limit)
    return gate * torch.sigmoid(1.702 * gate) * (up.clamp(-limit, limit) + 1)


class GptOssExperts(nn.Module):
    """mlp1 is sharded on its output, mlp2 on its input; mlp2_bias is replicated over tp."""

    def __init__(self, mlp1_weight, mlp1_bias, mlp2_weight, mlp2_bias, tp_mesh):
        super().__init__()
        self.mlp1_weight = nn.Parameter(mlp1_weight)
        self.mlp1_bias = nn.Parameter(mlp1_bias)
        self.mlp2_weight = nn.Parameter(mlp2_weight)
        self.mlp2_bias = nn.Parameter(mlp2_bias)
        self.tp_mesh = tp_mesh

    def forward(self, x):
        # x: DTensor [experts, capacity, dim], Replicate on tp
        tp_degree = self.tp_mesh.size()
        x = x.to_local(grad_placements=(Partial(),))
        h = torch.bmm(x, self.mlp1_weight.to_local().transpose(-2, -1))
        h = swiglu(h + self.mlp1_bias.to_local().unsqueeze(1))
        out = torch.bmm(h, self.mlp2_weight.to_local().transpose(-2, -1))
        bias = self.mlp2_bias.to_local().unsqueeze(1)
        out = out + bias / tp_degree  # BUG
        out = DTensor.from_local(out, self.tp_mesh, (Partial(),), run_check=False)
        return out.redistribute(placements=(Replicate(),))
