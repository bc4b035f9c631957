"""Load-balancing loss over the tokens of the tensor- and context-parallel ranks."""
import torch
import torch.distributed as dist
from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region


class TopKRouter(torch.nn.Module):
    def __init__(self, config, tp_cp_group):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(config.num_moe_experts, config.hidden_size))
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)
        self.topk, self.num_experts = config.moe_router_topk, config.num_moe_experts
        self.coeff = config.moe_aux_loss_coeff
        self.tp_cp_group = tp_cp_group

    def aux_loss(self, hidden):
        # hidden: this rank's tokens, the ranks of tp_cp_group have different ones
        probs = torch.softmax(hidden @ self.weight.t(), dim=-1)
        tokens_per_expert = torch.topk(probs, self.topk, dim=-1).indices.flatten().bincount(
            minlength=self.num_experts
        )
        dist.all_reduce(tokens_per_expert, group=self.tp_cp_group)
        aggregated_probs = reduce_from_tensor_model_parallel_region(probs.sum(dim=0), group=self.tp_cp_group)
        num_tokens = probs.shape[0]  # BUG: the sums run over the tokens of all ranks of tp_cp_group
        return torch.sum(aggregated_probs * tokens_per_expert) * (
            self.num_experts * self.coeff / (num_tokens * num_tokens * self.topk)
        )
