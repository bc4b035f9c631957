"""Load-balancing loss over the tokens of all data-parallel ranks."""
import torch
import torch.distributed as dist
from megatron.core.transformer.moe.moe_utils import MoEAuxLossAutoScaler


def switch_load_balancing_loss(probs, tokens_per_expert, total_num_tokens, topk, coeff):
    num_experts = probs.size(-1)
    aggregated_probs = probs.sum(dim=0)
    return (aggregated_probs * tokens_per_expert).sum() * (num_experts * coeff / (topk * total_num_tokens ** 2))


class TopKRouter(torch.nn.Module):
    def __init__(self, hidden, num_experts, topk, coeff, dp_group):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(num_experts, hidden))
        self.topk, self.coeff, self.dp_group = topk, coeff, dp_group

    def forward(self, x):
        # x: [tokens of this rank, h], equally many on each rank
        probs = torch.nn.functional.linear(x, self.weight).softmax(dim=-1)
        scores, ids = probs.topk(self.topk, dim=-1)
        tokens_per_expert = torch.bincount(ids.flatten(), minlength=probs.size(-1))
        dist.all_reduce(tokens_per_expert, group=self.dp_group)
        total_num_tokens = probs.size(0) * self.dp_group.size()
        aux_loss = switch_load_balancing_loss(probs, tokens_per_expert, total_num_tokens, self.topk, self.coeff)
        scores = MoEAuxLossAutoScaler.apply(scores, aux_loss * self.dp_group.size())
        return scores, ids


def finish_grad_sync(model, dp_group):
    for p in model.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=dp_group)
