"""Experts that gather tokens over the expert-parallel ranks (NVIDIA-NeMo/Automodel#2995)."""
import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import (
    all_gather_tensor,
    all_gather_tensor_autograd,
    reduce_scatter_tensor_autograd,
)


class GroupedExperts(torch.nn.Module):
    def __init__(self, weight_shard, first_expert, ep_group):
        super().__init__()
        self.weight = torch.nn.Parameter(weight_shard)  # [experts/ep, dim, dim]
        self.first_expert, self.ep_group = first_expert, ep_group

    def forward(self, x, probs, indices):
        # x, probs, indices: this rank's tokens; probs come from the router
        x = all_gather_tensor_autograd(x.contiguous(), 0, self.ep_group)
        indices = all_gather_tensor(indices.contiguous(), 0, self.ep_group)
        parts = [torch.empty_like(probs) for _ in range(self.ep_group.size())]
        dist.all_gather(parts, probs.contiguous(), group=self.ep_group)  # BUG: cuts the router off the main loss
        probs = torch.cat(parts)
        out = torch.zeros_like(x)
        for i, w in enumerate(self.weight):
            tok, slot = torch.where(indices == self.first_expert + i)
            out = out.index_add(0, tok, (x[tok] @ w) * probs[tok, slot].unsqueeze(-1))
        return reduce_scatter_tensor_autograd(out, "sum", 0, self.ep_group)
