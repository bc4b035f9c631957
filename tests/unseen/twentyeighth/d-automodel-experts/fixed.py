"""Grouped experts for the torch dispatcher: gather tokens, run local experts, reduce."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Shard


def _swiglu(x, gate_up, down):
    gate, up = F.linear(x, gate_up).chunk(2, dim=-1)
    return F.linear(F.silu(gate) * up, down)


class Gate(nn.Module):
    def __init__(self, dim, n_experts, top_k, route_scale=1.0):
        super().__init__()
        self.top_k = top_k
        self.route_scale = route_scale
        self.weight = nn.Parameter(torch.empty(n_experts, dim))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x, token_mask):
        probs = F.linear(x, self.weight).float().softmax(dim=-1)
        weights, indices = probs.topk(self.top_k, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True) * self.route_scale
        indices = indices.masked_fill(~token_mask.unsqueeze(-1), -1)
        return weights.type_as(x), indices


class GroupedExperts(nn.Module):
    """Holds ``n_experts / ep_size`` experts of each rank of the expert-parallel mesh."""

    def __init__(self, dim, inter_dim, n_experts, ep_mesh: DeviceMesh):
        super().__init__()
        self.ep_mesh = ep_mesh
        self.n_local = n_experts // ep_mesh.size()
        self.start = ep_mesh.get_local_rank() * self.n_local
        self.gate_up = nn.Parameter(torch.empty(self.n_local, 2 * inter_dim, dim))
        self.down = nn.Parameter(torch.empty(self.n_local, dim, inter_dim))
        nn.init.normal_(self.gate_up, std=0.02)
        nn.init.normal_(self.down, std=0.02)

    def forward(self, x, weights, indices):
        """x: [tokens of this rank, dim]; every rank of the mesh has other tokens."""
        mesh = self.ep_mesh
        if mesh.size() > 1:
            indices = DTensor.from_local(
                indices, device_mesh=mesh, placements=[Shard(0)]
            ).full_tensor()
            x = DTensor.from_local(x, device_mesh=mesh, placements=[Shard(0)]).full_tensor(
                grad_placements=[Partial()]
            )
            weights = DTensor.from_local(
                weights, device_mesh=mesh, placements=[Shard(0)]
            ).full_tensor(grad_placements=[Partial()])

        y = torch.zeros_like(x)
        for e in range(self.n_local):
            token, slot = torch.where(indices == self.start + e)
            if token.numel() == 0:
                continue
            out = _swiglu(x[token], self.gate_up[e], self.down[e])
            y = y.index_add(0, token, out * weights[token, slot].unsqueeze(-1))

        if mesh.size() > 1:
            y = DTensor.from_local(y, device_mesh=mesh, placements=[Partial()])
            y = y.redistribute(placements=[Shard(0)]).to_local()
        return y


class MoE(nn.Module):
    def __init__(self, dim, inter_dim, n_experts, top_k, ep_mesh):
        super().__init__()
        self.gate = Gate(dim, n_experts, top_k)
        self.experts = GroupedExperts(dim, inter_dim, n_experts, ep_mesh)
        self.shared_up = nn.Linear(dim, inter_dim, bias=False)
        self.shared_down = nn.Linear(inter_dim, dim, bias=False)

    def forward(self, x, padding_mask=None):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        token_mask = (
            ~padding_mask.flatten()
            if padding_mask is not None
            else torch.ones(x.size(0), dtype=torch.bool, device=x.device)
        )
        weights, indices = self.gate(x, token_mask)
        y = self.experts(x, weights, indices)
        z = self.shared_down(F.silu(self.shared_up(x)))
        return (y + z).view(shape)
