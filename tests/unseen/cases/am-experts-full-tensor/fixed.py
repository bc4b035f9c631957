"""Grouped experts: gather the tokens of all expert-parallel ranks with DTensor."""
import torch
from torch.distributed.tensor import DTensor, Partial, Shard


class GroupedExperts(torch.nn.Module):
    def __init__(self, gate_and_up: DTensor, down: DTensor):
        super().__init__()
        self.gate_and_up = torch.nn.Parameter(gate_and_up)  # Shard(0): experts over EP ranks
        self.down = torch.nn.Parameter(down)

    def forward(self, x, expert_mask):
        # x: this rank's tokens
        ep_mesh = self.gate_and_up.device_mesh
        x = DTensor.from_local(x, device_mesh=ep_mesh, placements=[Shard(0)]).full_tensor(
            grad_placements=[Partial()]
        )
        w1, w2 = self.gate_and_up.to_local(), self.down.to_local()
        y = torch.zeros_like(x)
        for i in range(w1.shape[0]):
            y = y + expert_mask[i].unsqueeze(-1) * (torch.relu(x @ w1[i]) @ w2[i])
        y = DTensor.from_local(y, device_mesh=ep_mesh, placements=[Partial()])
        return y.redistribute(placements=[Shard(0)]).to_local()
