"""Switch load-balancing loss on a sequence split over ranks (Megatron-Core moe_utils)."""
import torch
from megatron.core import parallel_state


def switch_load_balancing_loss_func(
    probs, tokens_per_expert, topk, moe_aux_loss_coeff, sequence_partition_group=None
):
    """probs: [local tokens, experts]; tokens_per_expert: counts of the local tokens, no gradient.

    Router gradients are summed over sequence_partition_group afterwards.
    """
    num_sub_sequence = 1
    if sequence_partition_group is not None:
        torch.distributed.all_reduce(tokens_per_expert, group=sequence_partition_group)
    num_tokens = probs.shape[0] * num_sub_sequence  # BUG: local tokens although the counts are of all slices
    num_experts = probs.shape[1]

    aggregated_probs_per_expert = probs.sum(dim=0)
    return torch.sum(aggregated_probs_per_expert * tokens_per_expert) * (
        num_experts * moe_aux_loss_coeff / (num_tokens * num_tokens * topk)
    )


class TopKRouter(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.weight = torch.nn.Parameter(torch.empty(config.num_moe_experts, config.hidden_size))
        torch.nn.init.normal_(self.weight, std=0.02)
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)

    def forward(self, hidden_states):
        logits = torch.nn.functional.linear(hidden_states.flatten(0, 1), self.weight)
        scores = torch.softmax(logits, dim=-1, dtype=torch.float32)
        probs, indices = torch.topk(scores, self.config.moe_router_topk, dim=1)
        tokens_per_expert = torch.bincount(indices.flatten(), minlength=scores.shape[1])
        group = None
        if self.config.sequence_parallel:
            group = parallel_state.get_tensor_model_parallel_group()
        aux_loss = switch_load_balancing_loss_func(
            scores, tokens_per_expert, self.config.moe_router_topk, self.config.moe_aux_loss_coeff, group
        )
        return probs, indices, aux_loss
