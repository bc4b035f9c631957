"""An activation before the reduction: gelu of a sum is not the sum of gelus."""

# spmd: mesh dense = dp, tp
import torch.nn.functional as F
from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region


# spmd: x: {tp: S(-1)}, weight: {tp: S(1)}, bias: {tp: I} -> {tp: I}
def row_parallel_gelu(x, weight, bias):
    partial = F.linear(x, weight)  # spmd: {tp: P}
    activated = F.gelu(partial)
    return reduce_from_tensor_model_parallel_region(activated) + bias


# spmd: x: {tp: S(-1)}, weight: {tp: S(1)}, bias: {tp: I} -> {tp: I}
def row_parallel_bias(x, weight, bias):
    partial = F.linear(x, weight)  # spmd: {tp: P}
    return reduce_from_tensor_model_parallel_region(partial + bias)
