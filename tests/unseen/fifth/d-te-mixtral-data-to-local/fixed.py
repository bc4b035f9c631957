"""Expert weights stored as one stacked DTensor parameter."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Shard


class StackedExperts(nn.Module):
    def __init__(self, gate_up, down, ep_mesh):
        super().__init__()
        self.gate_up = nn.Parameter(DTensor.from_local(gate_up, ep_mesh, [Shard(0)]))
        self.down = nn.Parameter(DTensor.from_local(down, ep_mesh, [Shard(0)]))

    def forward(self, tokens):
        # tokens: [local_experts, capacity, hidden]
        gate_up = self.gate_up.to_local()
        down = self.down.to_local()
        gate, up = torch.bmm(tokens, gate_up).chunk(2, dim=-1)
        return torch.bmm(F.silu(gate) * up, down)
