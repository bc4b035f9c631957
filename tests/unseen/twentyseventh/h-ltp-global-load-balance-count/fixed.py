"""Load-balancing loss of an MoE router over the global batch."""
import torch
import torch.distributed
from megatron.core import parallel_state
from megatron.core.transformer.moe.moe_utils import MoEAuxLossAutoScaler


class TopKRouter(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.topk, self.num_experts = config.moe_router_topk, config.num_moe_experts
        self.coeff = config.moe_aux_loss_coeff
        self.weight = torch.nn.Parameter(torch.empty(self.num_experts, config.hidden_size))
        torch.nn.init.normal_(self.weight, std=config.init_method_std)

    def apply_global_load_balancing_loss(self, probs, routing_map, activation):
        group = parallel_state.get_data_parallel_group()
        routing_count = routing_map.sum(dim=0).float()
        torch.distributed.all_reduce(routing_count, group=group)
        fraction = routing_count / routing_count.sum()
        aux_loss = self.coeff * self.num_experts * (fraction * probs.mean(dim=0)).sum()
        return MoEAuxLossAutoScaler.apply(activation, aux_loss)

    def forward(self, tokens):
        # tokens: [num_tokens, hidden] of this data-parallel rank
        probs = torch.softmax(tokens.float() @ self.weight.float().t(), dim=-1)
        top_probs, top_indices = probs.topk(self.topk, dim=-1)
        routing_map = torch.zeros_like(probs, dtype=torch.bool).scatter(1, top_indices, True)
        top_probs = self.apply_global_load_balancing_loss(probs, routing_map, top_probs)
        return top_probs.type_as(tokens), routing_map
