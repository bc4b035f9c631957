# Reduces Megatron-LM's switch load balancing loss under sequence parallelism: the normaliser counts the tokens of
# the whole sequence while the tokens per expert are those of the slice of the own rank.
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.transformer.moe.moe_utils import MoEAuxLossAutoScaler


def switch_load_balancing_loss(probs, tokens_per_expert, topk, coeff, group):
    """The part of the loss that belongs to the tokens of this rank; the parts of the group add up."""
    num_experts = probs.shape[1]
    num_tokens = probs.shape[0] * dist.get_world_size(group)
    aggregated_probs = probs.sum(dim=0)
    scale = num_experts * coeff / (num_tokens * num_tokens * topk)
    return torch.sum(aggregated_probs * tokens_per_expert) * scale


class TopKRouter(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.weight = torch.nn.Parameter(torch.empty(config.num_moe_experts, config.hidden_size))
        config.init_method(self.weight)
        # each rank of the group routes its own tokens
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)

    def forward(self, hidden):
        assert self.config.sequence_parallel
        group = parallel_state.get_tensor_model_parallel_group()
        logits = torch.nn.functional.linear(hidden.flatten(0, 1), self.weight)
        probs = torch.softmax(logits, dim=-1, dtype=torch.float32)
        scores, indices = torch.topk(probs, self.config.moe_router_topk, dim=-1)
        counts = torch.bincount(indices.flatten(), minlength=probs.shape[1])
        dist.all_reduce(counts, group=group)
        aux = switch_load_balancing_loss(probs, counts, self.config.moe_router_topk,
                                         self.config.moe_aux_loss_coeff, group)
        return MoEAuxLossAutoScaler.apply(scores, aux), indices
