"""Load-balancing loss of a router whose tokens are split over TP x CP."""
import torch
from megatron.core.transformer.moe.moe_utils import MoEAuxLossAutoScaler


class TopKRouter(torch.nn.Module):
    def __init__(self, config, tp_cp_group):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(config.num_moe_experts, config.hidden_size))
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)
        self.config, self.tp_cp_group = config, tp_cp_group

    def apply_aux_loss(self, probs, scores, routing_map):
        # all: [tokens of this rank, experts]
        tokens_per_expert = routing_map.sum(dim=0)  # BUG: local counts, num_tokens is global
        num_tokens = scores.size(0) * self.tp_cp_group.size()
        coeff = self.config.num_moe_experts * self.config.moe_aux_loss_coeff
        aux_loss = torch.sum(scores.sum(dim=0) * tokens_per_expert) * (
            coeff / (self.config.moe_router_topk * num_tokens * num_tokens)
        )
        return MoEAuxLossAutoScaler.apply(probs, aux_loss)
