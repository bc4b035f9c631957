import torch
from megatron.core.tensor_parallel import mappings as M


# spmd: y: {tp: P}
def f(y, c, hook):
    if c.sp:
        y = M.reduce_scatter_to_sequence_parallel_region(y)
    else:
        y = M.reduce_from_tensor_model_parallel_region(y)
    if hook is not None and hook.wants(y):
        y = y * 2
    if hook is not None and hook.whole and c.sp:
        y = M.gather_from_sequence_parallel_region(y, tensor_parallel_output_grad=False)
    return y


# spmd: y: {tp: P}
def g(y, c, n):
    if not c.sp:
        y = M.reduce_from_tensor_model_parallel_region(y)
    else:
        y = M.reduce_scatter_to_sequence_parallel_region(y)
    if n > 0 and c.sp:
        y = M.gather_from_sequence_parallel_region(y, tensor_parallel_output_grad=False)
    return y


# spmd: y: {tp: P}
def h(y, c, n):
    if not c.sp:
        y = M.reduce_from_tensor_model_parallel_region(y)
    else:
        y = M.reduce_scatter_to_sequence_parallel_region(y)
    assert not (y.dim() == 2 and c.sp)
    if y.dim() != 2 and c.sp:
        y = M.gather_from_sequence_parallel_region(y, tensor_parallel_output_grad=False)
    return y
