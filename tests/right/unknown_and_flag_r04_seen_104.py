import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import mappings as M


# spmd: y: {tp: P}, bias: {tp: I}
def f(y, bias, c):
    if c.reduce:
        y = M.reduce_from_tensor_model_parallel_region(y)
    if bias is not None and bias.numel() > 1 and c.reduce:
        y = y + bias
    return y if c.reduce else M.reduce_from_tensor_model_parallel_region(y) + bias
