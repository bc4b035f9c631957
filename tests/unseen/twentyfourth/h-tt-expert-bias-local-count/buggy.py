"""Auxiliary-loss-free load balancing of a MoE router.

After pytorch/torchtitan PR #1114 (torchtitan/experiments/llama4/optimizer.py and model/moe.py).
"""
import torch
import torch.nn as nn


class TokenChoiceTopKRouter(nn.Module):
    def __init__(self, dim, num_experts, top_k):
        super().__init__()
        self.gate = nn.Linear(dim, num_experts, bias=False)
        self.num_experts, self.top_k = num_experts, top_k

    def forward(self, x, expert_bias):
        scores = torch.sigmoid(self.gate(x).float())
        # the bias only takes part in the selection
        _, selected = torch.topk(scores + expert_bias, k=self.top_k, dim=1)
        top_scores = scores.gather(dim=1, index=selected)
        counts = torch.bincount(selected.reshape(-1), minlength=self.num_experts)
        return top_scores, selected, counts


class MoE(nn.Module):
    def __init__(self, dim, experts, num_experts, top_k, load_balance_coeff):
        super().__init__()
        self.router = TokenChoiceTopKRouter(dim, num_experts, top_k)
        self.experts = experts
        self.load_balance_coeff = load_balance_coeff
        self.register_buffer("expert_bias", torch.zeros(num_experts, dtype=torch.float32))
        self.register_buffer(
            "tokens_per_expert", torch.zeros(num_experts, dtype=torch.float32), persistent=False
        )

    def forward(self, x):
        top_scores, selected, counts = self.router(x, self.expert_bias)
        with torch.no_grad():
            self.tokens_per_expert.add_(counts)
        return self.experts(x, top_scores, selected)


def register_expert_bias_hook(optimizer, model_parts, world_mesh):
    """Update the biases once per optimizer step, before the weights change.

    Each rank of the dp_cp mesh routes its own tokens; the biases are plain buffers, one copy per rank.
    """
    dp_cp_group = world_mesh["dp_cp"].get_group()

    @torch.no_grad()
    def update_expert_bias(*_):
        for part in model_parts:
            for moe in (m for m in part.modules() if isinstance(m, MoE)):
                counts = moe.tokens_per_expert
                delta = moe.load_balance_coeff * torch.sign(counts.mean() - counts)  # BUG: local counts
                moe.expert_bias.add_(delta - delta.mean())
                counts.zero_()

    optimizer.register_step_pre_hook(update_expert_bias)
    return dp_cp_group


def train_step(model_parts, optimizer, micro_batches, loss_fn):
    optimizer.zero_grad()
    for batch in micro_batches:
        loss = loss_fn(model_parts[0](batch["input"]), batch["label"]) / len(micro_batches)
        loss.backward()
    optimizer.step()
