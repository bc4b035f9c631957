"""Grouped expert weights and the group that reduces them."""
import torch
from megatron.core import parallel_state


class GroupedExperts(torch.nn.Module):
    def __init__(self, config, num_local_experts):
        super().__init__()
        expert_parallel = config.expert_model_parallel_size > 1
        self.w1 = torch.nn.Parameter(torch.empty(num_local_experts, config.hidden_size, config.moe_ffn_hidden_size))
        self.w2 = torch.nn.Parameter(torch.empty(num_local_experts, config.moe_ffn_hidden_size, config.hidden_size))
        setattr(self.w1, "allreduce", not expert_parallel)
        setattr(self.w2, "allreduce", not expert_parallel)

    def forward(self, tokens):
        return torch.bmm(torch.nn.functional.silu(torch.bmm(tokens, self.w1)), self.w2)


def reduce_gradients(module):
    dense = parallel_state.get_data_parallel_group(with_context_parallel=True)
    expert = parallel_state.get_expert_data_parallel_group()
    for p in module.parameters():
        group = dense if getattr(p, "allreduce", True) else expert
        torch.distributed.all_reduce(p.main_grad, group=group)
