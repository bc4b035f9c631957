"""Load-balancing loss over the global batch.

Source: https://github.com/microsoft/ltp-megatron-lm/pull/68
Wrong: torch.distributed.nn.all_reduce is not in place and its result is not used, so the counts
stay those of this rank while the formula divides by the tokens of all ranks.
Repair: the in-place collective (the counts carry no gradient).
"""
import torch
import torch.distributed

from megatron.core import parallel_state
from megatron.core.transformer.moe.moe_utils import MoEAuxLossAutoScaler


def global_load_balancing_loss(probs, routing_map, topk, num_experts, coeff, group):
    routing_count = routing_map.sum(dim=0).to(probs.dtype).detach()
    torch.distributed.all_reduce(routing_count, group=group)
    num_tokens = probs.size(0) * group.size()
    fraction = routing_count / (num_tokens * topk)
    return coeff * num_experts * (probs.mean(dim=0) * fraction).sum()


class TopKRouter(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.weight = torch.nn.Parameter(torch.empty(config.num_moe_experts, config.hidden_size))

    def forward(self, hidden_states):
        logits = torch.nn.functional.linear(hidden_states, self.weight)
        probs = torch.softmax(logits, dim=-1, dtype=torch.float32)
        scores, indices = torch.topk(probs, self.config.moe_router_topk, dim=-1)
        routing_map = torch.zeros_like(probs).scatter(1, indices, 1.0).bool()
        aux = global_load_balancing_loss(
            probs, routing_map, self.config.moe_router_topk, self.config.num_moe_experts,
            self.config.moe_aux_loss_coeff, parallel_state.get_data_parallel_group(with_context_parallel=True),
        )
        return MoEAuxLossAutoScaler.apply(scores, aux), routing_map
