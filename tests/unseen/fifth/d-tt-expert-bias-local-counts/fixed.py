"""Load balancing without an auxiliary loss: a bias per expert, moved by the token counts."""
import torch
import torch.distributed as dist
import torch.nn as nn


class BiasedRouter(nn.Module):
    def __init__(self, dim, num_experts, topk):
        super().__init__()
        self.gate = nn.Linear(dim, num_experts, bias=False)
        self.topk = topk
        self.register_buffer("expert_bias", torch.zeros(num_experts))  # replicated over data ranks
        self.register_buffer("tokens_per_expert", torch.zeros(num_experts), persistent=False)

    def forward(self, x):
        scores = torch.sigmoid(self.gate(x))
        _, index = torch.topk(scores + self.expert_bias, self.topk, dim=-1)
        with torch.no_grad():
            self.tokens_per_expert += torch.bincount(index.flatten(), minlength=self.expert_bias.numel())
        return scores.gather(-1, index), index


@torch.no_grad()
def update_expert_bias(model, rate, dp_group):
    for m in model.modules():
        if isinstance(m, BiasedRouter):
            counts = m.tokens_per_expert
            dist.all_reduce(counts, group=dp_group)
            m.expert_bias += rate * torch.sign(counts.mean() - counts)
            m.tokens_per_expert.zero_()
