import torch
from megatron.core.tensor_parallel import mappings as M


# spmd: x: {tp: I}
def f(x, c):
    if c.sp:
        x = M.scatter_to_sequence_parallel_region(x)
    if x.dim() == 3 and c.sp:
        return M.gather_from_sequence_parallel_region(x, tensor_parallel_output_grad=False)
    return x


# spmd: x: {tp: I}
def g(x, c):
    if c.sp:
        x = M.scatter_to_sequence_parallel_region(x)
    else:
        x = x + 1
    if x.is_cuda and c.sp:
        return M.gather_from_sequence_parallel_region(x, tensor_parallel_output_grad=False)
    return x


# spmd: x: {tp: I}
def h(x, c):
    if c.sp:
        x = M.scatter_to_sequence_parallel_region(x)
    else:
        x = x + 1
    return M.gather_from_sequence_parallel_region(x, tensor_parallel_output_grad=False) if x.is_cuda and c.sp else x


# spmd: x: {tp: I}
def k(x, c):
    y = M.scatter_to_sequence_parallel_region(x) if c.sp else x
    if len(y) and c.sp:
        return M.gather_from_sequence_parallel_region(y, tensor_parallel_output_grad=False)
    return y
