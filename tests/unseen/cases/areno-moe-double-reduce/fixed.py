"""MoE layer whose experts are tensor-parallel, in a sequence-parallel model."""
# inclusionAI/AReno PR 510: the expert output was all-reduced, and then reduce-scattered on the way back to the sequence shards.
import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import (
    gather_from_sequence_parallel_region,
    reduce_from_tensor_model_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
)


class Router(torch.nn.Module):
    def __init__(self, hidden_size, num_experts):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(num_experts, hidden_size))
        self.weight.sequence_parallel = True

    def forward(self, hidden_states):
        # runs on the local sequence shard, the mark sums the gradient once
        return F.linear(hidden_states, self.weight).softmax(dim=-1)


class ParallelExperts(torch.nn.Module):
    def __init__(self, w1, w2):
        super().__init__()
        # [experts, ffn/tp, h] and [experts, h, ffn/tp]
        self.w1 = torch.nn.Parameter(w1)
        self.w1.tensor_model_parallel = True
        self.w2 = torch.nn.Parameter(w2)
        self.w2.tensor_model_parallel = True

    def forward(self, x, probs):
        out = 0
        for i in range(self.w1.size(0)):
            h = F.silu(F.linear(x, self.w1[i]))
            out = out + F.linear(h, self.w2[i]) * probs[..., i : i + 1]
        return out


class MoELayer(torch.nn.Module):
    def __init__(self, router: Router, experts: ParallelExperts):
        super().__init__()
        self.router = router
        self.experts = experts

    def forward(self, hidden_states):
        # hidden_states: [s/tp, b, h]
        probs = self.router(hidden_states)
        x = gather_from_sequence_parallel_region(hidden_states)
        probs = gather_from_sequence_parallel_region(probs)
        out = self.experts(x, probs)
        out = reduce_scatter_to_sequence_parallel_region(out)
        return hidden_states + out
