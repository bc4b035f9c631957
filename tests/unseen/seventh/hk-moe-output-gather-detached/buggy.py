"""MoE block: routed experts on a slice of the tokens, shared expert on all of them."""
import torch
import torch.distributed as dist
import torch.nn as nn
from megatron.core.tensor_parallel import (
    gather_from_sequence_parallel_region,
    scatter_to_sequence_parallel_region,
)


class HybridMoEBlock(nn.Module):
    def __init__(self, routed_experts, shared_expert, tp_group):
        super().__init__()
        self.routed_experts = routed_experts  # expert parallel over tp_group, all-to-all inside
        self.shared_expert = shared_expert  # tensor parallel, output complete on every rank
        self.tp_group = tp_group

    def _gather_tokens(self, local):
        full = torch.empty(
            local.size(0) * dist.get_world_size(self.tp_group),
            *local.shape[1:], dtype=local.dtype, device=local.device,
        )
        dist.all_gather_into_tensor(full, local.contiguous(), group=self.tp_group)  # BUG
        return full

    def forward(self, x):
        # x: [tokens, hidden], the same on every tensor-parallel rank
        mine = scatter_to_sequence_parallel_region(x)
        routed = self._gather_tokens(self.routed_experts(mine))
        return self.shared_expert(x) + routed
