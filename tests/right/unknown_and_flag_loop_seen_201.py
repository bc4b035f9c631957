import torch
from megatron.core.tensor_parallel import mappings as M


# spmd: y: {tp: P}
def f(y, c):
    if c.sp:
        y = M.reduce_scatter_to_sequence_parallel_region(y)
    else:
        y = M.reduce_from_tensor_model_parallel_region(y)
    for i in range(c.n):
        if i == c.n - 1 and c.sp:
            y = M.gather_from_sequence_parallel_region(y, tensor_parallel_output_grad=False)
        else:
            y = y * 2
    return y


# spmd: y: {tp: P}
def g(y, c, layers):
    if c.sp:
        y = M.reduce_scatter_to_sequence_parallel_region(y)
    else:
        y = M.reduce_from_tensor_model_parallel_region(y)
    for l in layers:
        y = y * l.scale
    if len(layers) > 0 and c.sp and layers[-1].whole:
        y = M.gather_from_sequence_parallel_region(y, tensor_parallel_output_grad=False)
    return y
