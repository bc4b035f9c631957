"""Load-balancing loss of a router under sequence and context parallelism."""
import torch
from megatron.core import parallel_state


class TopKRouter(torch.nn.Module):
    def __init__(self, config, num_experts):
        super().__init__()
        self.config, self.num_experts = config, num_experts
        self.weight = torch.nn.Parameter(torch.empty(num_experts, config.hidden_size))
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)

    def aux_loss(self, scores, routing_map):
        # scores, routing_map: [tokens, experts], this rank's tokens (sequence split over CP and TP)
        group = parallel_state.get_context_parallel_group()  # BUG: the TP ranks hold other tokens too
        tokens_per_expert = routing_map.sum(dim=0)
        torch.distributed.all_reduce(tokens_per_expert, group=group)
        num_tokens = scores.size(0) * group.size()
        scale = self.num_experts * self.config.moe_aux_loss_coeff / (
            num_tokens * num_tokens * self.config.moe_router_topk
        )
        return torch.sum(scores.sum(dim=0) * tokens_per_expert) * scale
