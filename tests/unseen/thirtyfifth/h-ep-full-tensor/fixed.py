"""Experts of one rank applied to the tokens of the whole expert-parallel mesh."""
# thread: NVIDIA-NeMo/Automodel#1260
import torch
from torch import nn
from torch.distributed.tensor import DTensor, Partial, Shard


def gather_tokens(t, ep_mesh):
    return DTensor.from_local(t, ep_mesh, [Shard(0)]).full_tensor(grad_placements=[Partial()])


class GroupedExperts(nn.Module):
    def __init__(self, n_routed_experts, dim, inter_dim, ep_mesh):
        super().__init__()
        self.ep_mesh = ep_mesh
        self.n_local = n_routed_experts // ep_mesh.size()
        self.first = self.n_local * ep_mesh.get_local_rank()
        self.gate_up = nn.Parameter(torch.randn(self.n_local, dim, 2 * inter_dim) * 0.02)
        self.down = nn.Parameter(torch.randn(self.n_local, inter_dim, dim) * 0.02)

    def forward(self, x, weights, indices):
        # x: [tokens, dim], weights, indices: [tokens, top_k] of this rank's batch
        x = gather_tokens(x, self.ep_mesh)
        weights = gather_tokens(weights, self.ep_mesh)
        indices = gather_tokens(indices, self.ep_mesh)
        y = torch.zeros_like(x)
        for i in range(self.n_local):
            token, slot = torch.where(indices == self.first + i)
            gate, up = (x[token] @ self.gate_up[i]).chunk(2, dim=-1)
            out = (nn.functional.silu(gate) * up) @ self.down[i]
            y = y.index_add(0, token, out * weights[token, slot, None])
        return DTensor.from_local(y, self.ep_mesh, [Partial()]).redistribute(placements=[Shard(0)]).to_local()
