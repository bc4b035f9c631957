"""Grouped experts: gather the tokens of the expert-parallel group, run the local experts."""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed._functional_collectives import (
    all_gather_tensor_autograd,
    reduce_scatter_tensor_autograd,
)


class GroupedExperts(nn.Module):
    def __init__(self, local_experts, first_expert):
        super().__init__()
        self.experts, self.first_expert = nn.ModuleList(local_experts), first_expert

    def forward(self, x, weights, indices, ep_group):
        # x: [n, dim], weights (router scores) and indices: [n, topk], tokens of this rank
        n, topk = indices.shape
        all_x = all_gather_tensor_autograd(x.contiguous(), 0, ep_group)
        all_indices = indices.new_empty(n * ep_group.size(), topk)
        dist.all_gather_into_tensor(all_indices, indices.contiguous(), group=ep_group)
        all_weights = all_gather_tensor_autograd(weights.contiguous(), 0, ep_group)
        y = torch.zeros_like(all_x)
        for i, expert in enumerate(self.experts):
            token, slot = torch.where(all_indices == self.first_expert + i)
            y = y.index_add(0, token, expert(all_x[token]) * all_weights[token, slot].unsqueeze(-1))
        return reduce_scatter_tensor_autograd(y, "sum", 0, ep_group)
