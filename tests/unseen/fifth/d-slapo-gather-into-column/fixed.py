"""Sequence-parallel MLP with explicit region switches."""
import torch
import torch.nn.functional as F
from megatron.core import tensor_parallel


class SequenceParallelMLP(torch.nn.Module):
    def __init__(self, up_shard, down_shard):
        super().__init__()
        self.up = torch.nn.Parameter(up_shard)  # [ffn/tp, h]
        self.down = torch.nn.Parameter(down_shard)  # [h, ffn/tp]
        for w in (self.up, self.down):
            tensor_parallel.set_tensor_model_parallel_attributes(w, True, 0, 1)

    def forward(self, x):
        # x: [s/tp, b, h]
        x = tensor_parallel.gather_from_sequence_parallel_region(
            x, tensor_parallel_output_grad=True
        )
        h = F.gelu(F.linear(x, self.up))
        out = F.linear(h, self.down)
        return tensor_parallel.reduce_scatter_to_sequence_parallel_region(out)
