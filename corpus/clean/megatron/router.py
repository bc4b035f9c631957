"""Mixture-of-experts router with an auxiliary loss: the router is replicated and its gradient is summed by the finaliser."""

import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region


class TopKRouter(torch.nn.Module):
    def __init__(self, hidden, experts, topk, coefficient, sequence_parallel):
        super().__init__()
        self.topk, self.experts, self.coefficient = topk, experts, coefficient
        self.weight = torch.nn.Parameter(torch.empty(experts, hidden))
        setattr(self.weight, "sequence_parallel", sequence_parallel)
        self.sequence_parallel = sequence_parallel

    def forward(self, x):
        logits = F.linear(x.float(), self.weight.float())
        probs = torch.softmax(logits, dim=-1)
        weights, chosen = torch.topk(probs, self.topk, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        with torch.no_grad():
            counts = torch.bincount(chosen.flatten(), minlength=self.experts)
        share = probs.mean(dim=0)
        auxiliary = self.coefficient * self.experts * (share * counts.to(share.dtype)).sum()
        return weights, chosen, auxiliary


def all_tokens(x, sequence_parallel):
    if sequence_parallel:
        x = gather_from_sequence_parallel_region(x, tensor_parallel_output_grad=False)
    return x
