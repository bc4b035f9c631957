# Right: the reducer below sums every gradient with this mark; summed in place by tree_map with a lambda that calls dist.all_reduce.
from megatron.core.tensor_parallel import (
    reduce_from_tensor_model_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
)
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.utils._pytree import tree_map


class RowLinear(torch.nn.Module):
    def __init__(self, weight, size, sequence_parallel):
        super().__init__()
        self.weight = torch.nn.Parameter(weight)
        self.weight.tensor_model_parallel = True
        self.sequence_parallel = sequence_parallel
        self.bias = torch.nn.Parameter(torch.zeros(size))
        setattr(self.bias, "sequence_split", sequence_parallel)

    def forward(self, x):
        out = F.linear(x, self.weight)
        if self.sequence_parallel:
            out = reduce_scatter_to_sequence_parallel_region(out)
        else:
            out = reduce_from_tensor_model_parallel_region(out)
        return out + self.bias


def finish(model, tp_group):
    for p in model.parameters():
        if getattr(p, "sequence_split", False):
            tree_map(lambda t: dist.all_reduce(t, group=tp_group), {"t": p.grad})
