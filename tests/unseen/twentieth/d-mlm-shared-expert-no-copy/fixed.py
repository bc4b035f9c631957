"""Shared expert that issues its own collectives to overlap them with the dispatcher."""
import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    gather_from_sequence_parallel_region,
    reduce_from_tensor_model_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
)


class SharedExpertMLP(torch.nn.Module):
    def __init__(self, fc1_shard, fc2_shard, sequence_parallel):
        super().__init__()
        self.weight1 = torch.nn.Parameter(fc1_shard)  # [ffn/tp, h]
        self.weight2 = torch.nn.Parameter(fc2_shard)  # [h, ffn/tp]
        self.weight1.tensor_model_parallel = True
        self.weight2.tensor_model_parallel = True
        self.sequence_parallel = sequence_parallel

    def pre_forward_comm(self, x):
        if self.sequence_parallel:
            return gather_from_sequence_parallel_region(x)
        return copy_to_tensor_model_parallel_region(x)

    def post_forward_comm(self, out):
        if self.sequence_parallel:
            return reduce_scatter_to_sequence_parallel_region(out)
        return reduce_from_tensor_model_parallel_region(out)

    def forward(self, hidden_states):
        x = self.pre_forward_comm(hidden_states)
        out = F.linear(F.gelu(F.linear(x, self.weight1)), self.weight2)
        return self.post_forward_comm(out)
