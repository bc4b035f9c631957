"""MoE block: tensor-parallel routed experts and a replicated shared expert."""
# Source: sgl-project/sglang pull request 35535, also TensorRT-LLM 15922 (threads; written with Megatron mappings)
import torch
import torch.nn as nn
import torch.nn.functional as F
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    reduce_from_tensor_model_parallel_region,
)


class RoutedExperts(nn.Module):
    """Every rank holds a slice of the intermediate features of all experts."""

    def __init__(self, num_experts, hidden, intermediate, tp_size):
        super().__init__()
        local = intermediate // tp_size
        self.w13 = nn.Parameter(torch.empty(num_experts, 2 * local, hidden))
        self.w2 = nn.Parameter(torch.empty(num_experts, hidden, local))
        for p in (self.w13, self.w2):
            p.tensor_model_parallel = True

    def forward(self, x, weights, index):
        out = torch.zeros_like(x)
        for e in range(self.w13.size(0)):
            rows, slot = (index == e).nonzero(as_tuple=True)
            gate, up = F.linear(x[rows], self.w13[e]).chunk(2, dim=-1)
            y = F.linear(F.silu(gate) * up, self.w2[e])
            out = out.index_add(0, rows, y * weights[rows, slot].unsqueeze(-1))
        return out


class SharedExpert(nn.Module):
    """Too small to split: kept whole on each rank."""

    def __init__(self, hidden, intermediate):
        super().__init__()
        self.gate_up = nn.Linear(hidden, 2 * intermediate, bias=False)
        self.down = nn.Linear(intermediate, hidden, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class MoE(nn.Module):
    def __init__(self, config, tp_size):
        super().__init__()
        self.top_k = config.num_experts_per_tok
        self.gate = nn.Linear(config.hidden_size, config.n_routed_experts, bias=False)
        self.experts = RoutedExperts(
            config.n_routed_experts, config.hidden_size, config.moe_intermediate_size, tp_size
        )
        self.shared_experts = SharedExpert(config.hidden_size, config.shared_intermediate_size)

    def forward(self, hidden_states):
        # hidden_states: [tokens, hidden], the same on every tensor-parallel rank
        weights, index = self.gate(hidden_states).softmax(dim=-1).topk(self.top_k, dim=-1)
        shared_output = self.shared_experts(hidden_states)
        x = copy_to_tensor_model_parallel_region(hidden_states)
        weights = copy_to_tensor_model_parallel_region(weights)
        routed_output = self.experts(x, weights, index)
        return reduce_from_tensor_model_parallel_region(routed_output + shared_output)  # BUG
