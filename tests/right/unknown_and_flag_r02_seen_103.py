import torch
import torch.nn.functional as F
from megatron.core.tensor_parallel import mappings as M


# spmd: y: {tp: P}
def f(y, c):
    if c.sum_early:
        y = M.reduce_from_tensor_model_parallel_region(y)
    if y.dim() == 3 and c.sum_early:
        y = y.tanh()
    if not c.sum_early:
        y = M.reduce_from_tensor_model_parallel_region(y)
    return y
