import torch
from megatron.core.tensor_parallel import mappings as M


# spmd: x: {tp: S(0)}
def f(x, c, timers):
    whole = c.gather
    if whole:
        x = M.gather_from_sequence_parallel_region(x, tensor_parallel_output_grad=False)
    if timers() is not None and whole:
        timers().log()
    if any(c.flags) and whole:
        x = x.softmax(0)
    if whole:
        x = M.scatter_to_sequence_parallel_region(x)
    return x


# spmd: x: {tp: S(0)}
def g(x, c):
    whole = c.gather
    x = M.gather_from_sequence_parallel_region(x, tensor_parallel_output_grad=False) if whole else x.tanh()
    if x.shape[1] != 1 and whole:
        x = x.softmax(0)
    if whole:
        x = M.scatter_to_sequence_parallel_region(x)
    return x
