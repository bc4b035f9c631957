import torch
from megatron.core.tensor_parallel import mappings as M


# spmd: y: {tp: P}
def f(y, c):
    if c.sp:
        y = M.reduce_scatter_to_sequence_parallel_region(y)
    else:
        y = M.reduce_from_tensor_model_parallel_region(y)
    n = y.dim()
    if n == 3:
        y = y * 2
    if c.sp and c.last:
        y = M.gather_from_sequence_parallel_region(y, tensor_parallel_output_grad=False)
    if n == 3 and c.sp and not c.last:
        y = M.gather_from_sequence_parallel_region(y, tensor_parallel_output_grad=False)
    return y
