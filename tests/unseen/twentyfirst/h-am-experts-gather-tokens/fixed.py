"""Grouped experts: gather the tokens over expert-parallel ranks, compute the local experts."""
import torch
from torch import nn
from torch.distributed.tensor import DTensor, Partial, Shard


class GroupedExperts(nn.Module):
    def __init__(self, w_local, first_expert, ep_mesh):
        super().__init__()
        self.w = nn.Parameter(w_local)  # [experts / ep, dim, dim]
        self.first, self.ep_mesh = first_expert, ep_mesh

    def gather_tokens(self, t):
        t = DTensor.from_local(t, self.ep_mesh, [Shard(0)], run_check=False)
        return t.full_tensor(grad_placements=[Partial()])

    def forward(self, x, weights, indices):
        # x: [tokens, dim], weights and indices: [tokens, topk] of this rank
        x, weights, indices = self.gather_tokens(x), self.gather_tokens(weights), self.gather_tokens(indices)
        y = torch.zeros_like(x)
        for i in range(self.w.size(0)):
            token, slot = torch.where(indices == self.first + i)
            y = y.index_add(0, token, (x[token] @ self.w[i]) * weights[token, slot, None])
        y = DTensor.from_local(y, self.ep_mesh, [Partial()], run_check=False)
        return y.redistribute(placements=[Shard(0)]).to_local()
