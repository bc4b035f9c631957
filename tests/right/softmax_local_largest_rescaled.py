"""Each rank takes off the largest of its own part and scales its sum to the largest of all before the sum over ranks."""

import torch
import torch.distributed as dist


def token_losses(logits, target, vocab_start, vocab_end, tp_group):
    own_max = logits.max(dim=-1).values
    exp_sum = (logits - own_max.unsqueeze(-1)).exp().sum(dim=-1)
    all_max = own_max.clone()
    dist.all_reduce(all_max, op=dist.ReduceOp.MAX, group=tp_group)
    exp_sum = exp_sum * (own_max - all_max).exp()
    dist.all_reduce(exp_sum, group=tp_group)

    outside = (target < vocab_start) | (target >= vocab_end)
    local = (target - vocab_start).masked_fill(outside, 0)
    picked = logits.gather(-1, local.unsqueeze(-1)).squeeze(-1)
    picked = picked.masked_fill(outside, 0.0)
    dist.all_reduce(picked, group=tp_group)
    return all_max + exp_sum.log() - picked


class Head(torch.nn.Module):
    def __init__(self, weight, tp_group):
        super().__init__()
        self.weight = torch.nn.Parameter(weight)
        self.tp_group = tp_group

    @torch.no_grad()
    def forward(self, hidden, target):
        start = dist.get_rank(self.tp_group) * self.weight.size(0)
        return token_losses(hidden @ self.weight.t(), target, start, start + self.weight.size(0), self.tp_group)
