"""Load-balancing loss over the global batch."""
import torch
import torch.distributed as dist
from megatron.core import parallel_state


def global_batch_load_balancing_loss(probs, routing_map, topk, coeff):
    # probs: [tokens, experts] and routing_map (bool): this rank's tokens
    group = parallel_state.get_data_parallel_group(with_context_parallel=True)
    num_tokens, num_experts = probs.shape
    routing_count = routing_map.sum(dim=0).float()
    dist.all_reduce(routing_count, group=group)
    total = num_tokens * topk * dist.get_world_size(group)
    fraction = routing_count / total
    return coeff * num_experts * torch.sum(fraction * probs.mean(dim=0))
