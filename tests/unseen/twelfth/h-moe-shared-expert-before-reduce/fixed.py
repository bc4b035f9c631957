"""MoE block: routed experts split over TP along the ffn dimension, replicated shared expert."""
import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    reduce_from_tensor_model_parallel_region,
)


class SparseMoeBlock(torch.nn.Module):
    def __init__(self, hidden, ffn_per_partition, num_experts, top_k, shared_expert):
        super().__init__()
        self.gate = torch.nn.Linear(hidden, num_experts, bias=False)
        self.w1 = torch.nn.Parameter(torch.empty(num_experts, ffn_per_partition, hidden))
        self.w2 = torch.nn.Parameter(torch.empty(num_experts, hidden, ffn_per_partition))
        for w in (self.w1, self.w2):
            setattr(w, "tensor_model_parallel", True)
        self.shared_expert = shared_expert  # an ordinary MLP with full weights on each rank
        self.num_experts, self.top_k = num_experts, top_k

    def forward(self, hidden_states):
        # hidden_states: [tokens, h], the same on all tensor-parallel ranks
        scores, ids = torch.topk(self.gate(hidden_states).softmax(dim=-1), self.top_k, dim=-1)
        x = copy_to_tensor_model_parallel_region(hidden_states)
        scores = copy_to_tensor_model_parallel_region(scores)
        routed = torch.zeros_like(x)
        for e in range(self.num_experts):
            tok, slot = torch.where(ids == e)
            h = F.silu(F.linear(x[tok], self.w1[e]))
            routed = routed.index_add(0, tok, F.linear(h, self.w2[e]) * scores[tok, slot].unsqueeze(-1))
        shared = self.shared_expert(hidden_states)
        return reduce_from_tensor_model_parallel_region(routed) + shared
