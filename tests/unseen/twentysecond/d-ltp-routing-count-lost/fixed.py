"""Load-balancing loss over the global batch (microsoft/ltp-megatron-lm#68)."""
import torch
import torch.distributed
from megatron.core import parallel_state


def global_load_balancing_loss(probs, routing_map, coeff):
    # probs, routing_map: [tokens of this data-parallel rank, experts]
    routing_count = routing_map.sum(dim=0).float()
    torch.distributed.all_reduce(
        routing_count, group=parallel_state.get_data_parallel_group()
    )
    routing_freq = routing_count / routing_count.sum()
    num_experts = probs.size(-1)
    # probs.mean is local, the data-parallel average of the gradients does the rest
    return coeff * num_experts * torch.sum(probs.mean(dim=0) * routing_freq)
