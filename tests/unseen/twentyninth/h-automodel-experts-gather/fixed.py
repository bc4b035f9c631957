"""Grouped experts of a mixture-of-experts layer; the experts are sharded over the EP mesh."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial, Shard


class GroupedExperts(nn.Module):
    def __init__(self, n_routed_experts: int, dim: int, inter_dim: int):
        super().__init__()
        self.n_routed_experts = n_routed_experts
        # replaced by DTensors with Shard(0) over the EP mesh
        self.up_projs = nn.Parameter(torch.empty(n_routed_experts, inter_dim, dim))
        self.down_projs = nn.Parameter(torch.empty(n_routed_experts, dim, inter_dim))

    def forward(self, x, weights, indices):
        # x: [local tokens, dim]; weights, indices: [local tokens, top_k]
        ep_mesh = self.up_projs.device_mesh
        ep_size, ep_rank = ep_mesh.size(), ep_mesh.get_local_rank()
        n_local = self.n_routed_experts // ep_size
        start = ep_rank * n_local

        x = DTensor.from_local(x, device_mesh=ep_mesh, placements=[Shard(0)]).full_tensor(
            grad_placements=[Partial()]
        )
        weights = DTensor.from_local(weights, device_mesh=ep_mesh, placements=[Shard(0)]).full_tensor(
            grad_placements=[Partial()]
        )
        indices = DTensor.from_local(indices, device_mesh=ep_mesh, placements=[Shard(0)]).full_tensor()

        up, down = self.up_projs.to_local(), self.down_projs.to_local()
        y = torch.zeros_like(x)
        for i in range(start, start + n_local):
            token, slot = torch.where(indices == i)
            h = F.silu(F.linear(x[token], up[i - start]))
            out = F.linear(h, down[i - start]) * weights[token, slot, None]
            y = y.index_add(0, token, out.type_as(y))

        y = DTensor.from_local(y, device_mesh=ep_mesh, placements=[Partial()])
        return y.redistribute(placements=[Shard(0)]).to_local()
