"""Grouped experts: gather tokens and routing weights of the expert-parallel ranks."""
import torch
import torch.nn.functional as F
import torch.distributed as dist
from torch.distributed.nn.functional import all_gather


class Gate(torch.nn.Module):
    def __init__(self, dim, n_experts, topk):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(n_experts, dim))
        self.topk = topk

    def forward(self, x):
        scores = F.linear(x, self.weight).softmax(dim=-1)
        return torch.topk(scores, self.topk, dim=-1)


class GroupedExperts(torch.nn.Module):
    def __init__(self, dim, n_experts, topk, experts, ep_group):
        super().__init__()
        self.gate = Gate(dim, n_experts, topk)
        self.experts, self.ep_group = experts, ep_group

    def forward(self, x):
        weights, indices = self.gate(x)
        world = dist.get_world_size(self.ep_group)
        all_x = torch.cat(all_gather(x, group=self.ep_group))
        all_indices = [torch.empty_like(indices) for _ in range(world)]
        dist.all_gather(all_indices, indices, group=self.ep_group)
        all_weights = all_gather(weights, group=self.ep_group)
        y = self.experts(all_x, torch.cat(all_weights), torch.cat(all_indices))
        out = torch.empty_like(x)
        return torch.distributed.nn.functional.reduce_scatter(out, list(y.chunk(world)), group=self.ep_group)
