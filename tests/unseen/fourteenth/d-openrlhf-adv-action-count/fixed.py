# Reduces OpenRLHF's cross-rank advantage normalisation: the sum of advantages is reduced over the ranks while
# the number of actions it is divided by stays that of the own rank.
from dataclasses import dataclass
from typing import List

import torch
import torch.distributed as dist


@dataclass
class Experience:
    advantages: torch.Tensor
    action_mask: torch.Tensor


class DistributedStrategy:
    def all_reduce(self, data, op="mean"):
        data = data.clone().cuda()
        if op == "mean":
            data /= dist.get_world_size()
        dist.all_reduce(data, op=dist.ReduceOp.MAX if op == "max" else dist.ReduceOp.SUM)
        return data


class ReplayBuffer:
    def __init__(self):
        self.items: List[Experience] = []

    @torch.no_grad()
    def normalize(self, strategy: DistributedStrategy) -> None:
        advantages = torch.cat([i.advantages.flatten() for i in self.items]).float()
        mask = torch.cat([i.action_mask.flatten() for i in self.items]).float()

        local_sum = (advantages * mask).sum()
        local_count = mask.sum()
        sums = strategy.all_reduce(torch.stack([local_sum, local_count]), "sum")
        count = sums[1]
        mean = sums[0] / count

        sq = ((advantages - mean).pow(2) * mask).sum()
        total_sq = strategy.all_reduce(sq, "sum")
        rstd = (total_sq / count).clamp(min=1e-8).rsqrt()

        for item in self.items:
            item.advantages = (item.advantages - mean) * rstd
