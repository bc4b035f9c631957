# NeMo Automodel 8a83fdcee (#2995)
"""Experts without all-to-all: gather the tokens of the expert-parallel group, scatter the sums."""
import torch
import torch.distributed as dist
from torch.distributed.nn.functional import all_gather, reduce_scatter


class GroupedExperts(torch.nn.Module):
    def __init__(self, n_experts, dim, inter_dim, ep_group):
        super().__init__()
        self.ep_group, self.ep_size = ep_group, dist.get_world_size(ep_group)
        self.n_local = n_experts // self.ep_size
        self.first = dist.get_rank(ep_group) * self.n_local
        self.up = torch.nn.Parameter(torch.empty(self.n_local, dim, inter_dim))
        self.down = torch.nn.Parameter(torch.empty(self.n_local, inter_dim, dim))

    def forward(self, x, weights, indices):
        # x: [t, dim], weights and indices: [t, topk], this rank's tokens; t is the same on every rank
        x = torch.cat(all_gather(x.contiguous(), group=self.ep_group))
        parts = [torch.empty_like(indices) for _ in range(self.ep_size)]
        dist.all_gather(parts, indices.contiguous(), group=self.ep_group)
        indices = torch.cat(parts)
        weights = torch.cat(all_gather(weights.contiguous(), group=self.ep_group))

        y = torch.zeros_like(x)
        for i in range(self.n_local):
            token, k = torch.where(indices == self.first + i)
            h = torch.nn.functional.silu(x[token] @ self.up[i]) @ self.down[i]
            y = y.index_add(0, token, h * weights[token, k, None])
        chunks = [c.contiguous() for c in y.chunk(self.ep_size)]
        return reduce_scatter(torch.empty_like(chunks[0]), chunks, group=self.ep_group)
