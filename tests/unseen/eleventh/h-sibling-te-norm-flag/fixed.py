"""Norm module of the fused-operations API, used by Megatron-Core layers."""
import torch
from megatron.core import parallel_state
from megatron.core.tensor_parallel import (
    gather_from_sequence_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
)


class LayerNorm(torch.nn.LayerNorm):
    def __init__(self, hidden_size, eps=1e-5, sequence_parallel=None):
        super().__init__(hidden_size, eps=eps)
        if sequence_parallel is not None:
            self.weight.sequence_parallel = sequence_parallel
            self.bias.sequence_parallel = sequence_parallel


class MLPBlock(torch.nn.Module):
    def __init__(self, hidden_size, up_shard, down_shard):
        super().__init__()
        self.norm = LayerNorm(hidden_size, sequence_parallel=True)
        self.up, self.down = torch.nn.Parameter(up_shard), torch.nn.Parameter(down_shard)

    def forward(self, x):
        # x: [s/tp, b, h]
        h = gather_from_sequence_parallel_region(self.norm(x))
        h = torch.nn.functional.gelu(torch.nn.functional.linear(h, self.up))
        return x + reduce_scatter_to_sequence_parallel_region(torch.nn.functional.linear(h, self.down))


def allreduce_norm_grads(model):
    for param in model.parameters():
        if getattr(param, "sequence_parallel", False):
            torch.distributed.all_reduce(param.main_grad, group=parallel_state.get_tensor_model_parallel_group())
