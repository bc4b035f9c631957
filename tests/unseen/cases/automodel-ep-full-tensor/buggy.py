"""Experts sharded over EP: the tokens of all EP ranks are gathered, every rank computes its experts on all of them."""
# NVIDIA-NeMo/Automodel PR 1260: full_tensor() takes the gradient for equal on all ranks; it is a term of a sum.
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Shard


class GroupedExperts(nn.Module):
    def __init__(self, n_routed_experts, dim, inter_dim):
        super().__init__()
        self.n_routed_experts = n_routed_experts
        # DTensors, Shard(0) on ep
        self.gate_and_up_projs = nn.Parameter(torch.empty(n_routed_experts, dim, inter_dim * 2))
        self.down_projs = nn.Parameter(torch.empty(n_routed_experts, inter_dim, dim))

    def forward(self, x, token_mask, weights, indices, ep_mesh: DeviceMesh):
        # x, weights, indices: those of this rank's tokens
        ep_size, ep_rank = ep_mesh.size(), ep_mesh.get_local_rank()
        x = DTensor.from_local(x, device_mesh=ep_mesh, placements=[Shard(0)]).full_tensor()  # BUG: each rank computes other experts on x
        weights = DTensor.from_local(weights, device_mesh=ep_mesh, placements=[Shard(0)]).full_tensor()
        indices = DTensor.from_local(indices, device_mesh=ep_mesh, placements=[Shard(0)]).full_tensor()
        token_mask = DTensor.from_local(token_mask, device_mesh=ep_mesh, placements=[Shard(0)]).full_tensor()

        n_local = self.n_routed_experts // ep_size
        start = ep_rank * n_local
        gate_up = self.gate_and_up_projs.to_local()
        down = self.down_projs.to_local()
        y = torch.zeros_like(x)
        for i in range(start, start + n_local):
            idx, top = torch.where((indices == i) & token_mask.unsqueeze(-1))
            gate, up = (x[idx] @ gate_up[i - start]).chunk(2, dim=-1)
            out = (F.silu(gate) * up) @ down[i - start]
            y = y.index_add(0, idx, out * weights[idx, top, None])

        y = DTensor.from_local(y, device_mesh=ep_mesh, placements=[Partial()])
        return y.redistribute(placements=[Shard(0)]).to_local()
