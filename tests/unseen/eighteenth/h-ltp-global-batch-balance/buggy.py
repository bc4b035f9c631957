"""Load-balancing loss over the routing counts of the global batch.

Source: microsoft/ltp-megatron-lm, pull request #68. torch.distributed.nn.functional.all_reduce
returns its result and leaves its argument alone, so the routing counts stay those of the rank,
while the token count they are divided by is the global one.
"""
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_nn


def global_batch_load_balancing_loss(probs, routing_map, topk, coeff, group):
    """probs: [tokens, experts] router probabilities, routing_map: [tokens, experts] bool."""
    num_tokens, num_experts = probs.shape
    routing_count = routing_map.sum(dim=0).to(probs.dtype)
    token_count = torch.tensor(float(num_tokens), device=probs.device)
    dist_nn.all_reduce(routing_count, group=group)  # BUG
    dist.all_reduce(token_count, group=group)

    fraction = routing_count * num_experts / (token_count * topk)
    return coeff * torch.sum(probs.mean(dim=0) * fraction)


class TopKRouter(torch.nn.Module):
    def __init__(self, hidden_size, num_experts, topk, coeff, group):
        super().__init__()
        self.gate = torch.nn.Linear(hidden_size, num_experts, bias=False)
        self.topk, self.coeff, self.group = topk, coeff, group

    def forward(self, x):
        # each rank of the group routes the same number of tokens
        probs = torch.softmax(self.gate(x).float(), dim=-1)
        scores, index = probs.topk(self.topk, dim=-1)
        routing_map = torch.zeros_like(probs, dtype=torch.bool).scatter(1, index, True)
        aux = global_batch_load_balancing_loss(
            probs, routing_map, self.topk, self.coeff, self.group
        )
        return scores, index, aux
