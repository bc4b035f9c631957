# Grouped experts on local tensors; tokens are exchanged over the expert-parallel mesh with DTensor.
import torch
import torch.nn as nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Shard


def gather_tokens(x, mesh):
    return DTensor.from_local(x, device_mesh=mesh, placements=[Shard(0)], run_check=False)


class GroupedExperts(nn.Module):
    def __init__(self, num_experts, dim, inter_dim, mesh: DeviceMesh):
        super().__init__()
        self.mesh = mesh
        self.num_local = num_experts // mesh.size()
        self.first = mesh.get_local_rank() * self.num_local
        self.up = nn.Parameter(torch.empty(self.num_local, dim, 2 * inter_dim))
        self.down = nn.Parameter(torch.empty(self.num_local, inter_dim, dim))

    def expert(self, x, i):
        gate, up = (x @ self.up[i]).chunk(2, dim=-1)
        return (nn.functional.silu(gate) * up) @ self.down[i]

    def forward(self, x, weights, indices, token_mask):
        # x: [t, d] tokens of this rank, every rank has the same t
        indices = gather_tokens(indices, self.mesh).full_tensor()
        token_mask = gather_tokens(token_mask, self.mesh).full_tensor()
        weights = gather_tokens(weights, self.mesh).full_tensor(grad_placements=[Partial()])
        x = gather_tokens(x, self.mesh).full_tensor()  # BUG
        y = torch.zeros_like(x)
        for i in range(self.num_local):
            tok, slot = torch.where((indices == self.first + i) & token_mask[:, None])
            y = y.index_add(0, tok, self.expert(x[tok], i) * weights[tok, slot, None])
        y = DTensor.from_local(y, device_mesh=self.mesh, placements=[Partial()], run_check=False)
        return y.redistribute(placements=[Shard(0)]).to_local()
