import torch
from megatron.core.tensor_parallel import mappings as M


# spmd: x: {tp: I}, w: {tp: S(0)}, v: {tp: S(1)}
def f(x, w, v, c, probe):
    out = torch.nn.functional.linear(M.copy_to_tensor_model_parallel_region(x), w)
    whole = False
    if c.gather:
        out = M.gather_from_tensor_model_parallel_region(out)
        whole = True
    if probe(out) and whole:
        out = out.softmax(-1)
    if whole:
        out = M.scatter_to_tensor_model_parallel_region(out)
    return M.reduce_from_tensor_model_parallel_region(torch.nn.functional.linear(out, v))


# spmd: x: {tp: I}, w: {tp: S(0)}
def g(x, w, c, probe):
    out = torch.nn.functional.linear(M.copy_to_tensor_model_parallel_region(x), w)
    if c.gather:
        out = M.gather_from_tensor_model_parallel_region(out)
    else:
        out = out * 1
    if len(out) > 3 and c.gather:
        out = out.softmax(-1)
    return out


# spmd: x: {tp: P}
def h(x, c, probe):
    if c.late:
        x = x * 1
    else:
        x = M.reduce_from_tensor_model_parallel_region(x)
    if probe.ready() and not c.late:
        return x.tanh()
    if c.late:
        x = M.reduce_from_tensor_model_parallel_region(x)
    return x.tanh()


# spmd: x: {tp: P}
def k(x, c, probe):
    if not c.late:
        x = M.reduce_from_tensor_model_parallel_region(x)
    if probe.ready() and not c.late:
        return x.tanh()
    if c.late:
        x = M.reduce_from_tensor_model_parallel_region(x)
    return x.tanh()
