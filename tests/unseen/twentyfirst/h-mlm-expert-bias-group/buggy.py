"""Update of the expert bias for aux-loss-free load balancing."""
import torch
from megatron.core import parallel_state


class TopKRouter(torch.nn.Module):
    def __init__(self, num_experts, update_rate):
        super().__init__()
        self.register_buffer("expert_bias", torch.zeros(num_experts))
        self.register_buffer("local_tokens_per_expert", torch.zeros(num_experts))
        self.update_rate = update_rate

    def count(self, routing_map):
        # tokens are split over the data, tensor and context-parallel ranks
        self.local_tokens_per_expert += routing_map.sum(dim=0)

    @torch.no_grad()
    def update_bias(self):
        tokens_per_expert = self.local_tokens_per_expert.clone()
        torch.distributed.all_reduce(
            tokens_per_expert,
            group=parallel_state.get_tensor_and_data_parallel_group(),  # BUG: context-parallel ranks differ
        )
        self.expert_bias += torch.sign(tokens_per_expert.mean() - tokens_per_expert) * self.update_rate
        self.local_tokens_per_expert.zero_()
