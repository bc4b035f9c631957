"""Load balancing over a micro-batch whose tokens are split (MoE router)."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class TopKRouter(nn.Module):
    """Statistics of the whole batch: fractions over all data-parallel ranks."""

    def __init__(self, config, dp_group):
        super().__init__()
        self.num_experts, self.topk = config.num_experts, config.topk
        self.coeff = config.aux_loss_coeff
        self.dp_group = dp_group
        self.weight = nn.Parameter(torch.empty(config.num_experts, config.hidden))

    def _balance_loss(self, probs, index):
        counts = F.one_hot(index, self.num_experts).sum(dim=(0, 1)).float()
        num_tokens = torch.tensor(float(probs.size(0)), device=probs.device)
        dist.all_reduce(counts, group=self.dp_group)
        fraction = counts / (num_tokens * self.topk)  # BUG
        return self.num_experts * (fraction * probs.mean(0)).sum()

    def forward(self, x):
        probs = F.linear(x, self.weight).float().softmax(-1)
        scores, index = probs.topk(self.topk, dim=-1)
        return scores, index, self.coeff * self._balance_loss(probs, index)


class MoE(nn.Module):
    def __init__(self, config, dp_group):
        super().__init__()
        self.router = TopKRouter(config, dp_group)
        self.experts = nn.ModuleList(nn.Linear(config.hidden, config.hidden) for _ in range(config.num_experts))

    def forward(self, x):
        scores, index, aux = self.router(x)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows, slot = (index == i).nonzero(as_tuple=True)
            out[rows] += scores[rows, slot].unsqueeze(-1) * expert(x[rows])
        return out, aux


def build(config, dp_group):
    return DDP(MoE(config, dp_group).cuda(), process_group=dp_group)
