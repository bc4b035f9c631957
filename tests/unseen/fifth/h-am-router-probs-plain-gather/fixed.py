"""Grouped experts: tokens and routing weights are gathered over the expert-parallel group."""
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_nn
import torch.nn as nn


class GroupedExperts(nn.Module):
    def __init__(self, experts, first, ep_group):
        super().__init__()
        self.experts, self.first, self.ep_group = nn.ModuleList(experts), first, ep_group

    def forward(self, x, weights, indices):
        x = torch.cat(dist_nn.all_gather(x, group=self.ep_group), dim=0)
        weights = torch.cat(dist_nn.all_gather(weights, group=self.ep_group), dim=0)
        ids = [torch.empty_like(indices) for _ in range(self.ep_group.size())]
        dist.all_gather(ids, indices, group=self.ep_group)
        indices = torch.cat(ids, dim=0)
        y = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            row, col = torch.where(indices == self.first + i)
            y[row] = y[row] + expert(x[row]) * weights[row, col, None]
        return dist_nn.reduce_scatter(torch.empty_like(x[: x.size(0) // self.ep_group.size()]), list(y.chunk(self.ep_group.size())), group=self.ep_group)
