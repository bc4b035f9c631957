import torch
from megatron.core.tensor_parallel import mappings as M


# spmd: y: {tp: P}
def f(y, c):
    if c.sp:
        y = M.reduce_scatter_to_sequence_parallel_region(y)
    else:
        y = M.reduce_from_tensor_model_parallel_region(y)
    if (y.dim() == 3 and c.last) and c.sp:
        y = M.gather_from_sequence_parallel_region(y, tensor_parallel_output_grad=False)
    return y


# spmd: y: {tp: P}
def g(y, c):
    if c.sp:
        y = M.reduce_scatter_to_sequence_parallel_region(y)
    else:
        y = M.reduce_from_tensor_model_parallel_region(y)
    if not (y.dim() != 3 or not c.sp):
        y = M.gather_from_sequence_parallel_region(y, tensor_parallel_output_grad=False)
    return y


# spmd: y: {tp: P}
def h(y, c):
    if c.sp:
        y = M.reduce_scatter_to_sequence_parallel_region(y)
    else:
        y = M.reduce_from_tensor_model_parallel_region(y)
    if bool(c.x()) is True and c.sp is True:
        y = M.gather_from_sequence_parallel_region(y, tensor_parallel_output_grad=False)
    return y
