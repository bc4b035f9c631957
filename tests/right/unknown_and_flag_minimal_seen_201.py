import torch
from megatron.core.tensor_parallel import mappings as M


# spmd: y: {tp: P}
def f(y, c, n):
    if c.sp:
        y = M.reduce_scatter_to_sequence_parallel_region(y)
    else:
        y = M.reduce_from_tensor_model_parallel_region(y)
    if n(y) and c.sp:
        y = M.gather_from_sequence_parallel_region(y, tensor_parallel_output_grad=False)
    return y


# spmd: y: {tp: P}
def g(y, sp, n):
    if sp:
        y = M.reduce_scatter_to_sequence_parallel_region(y)
    else:
        y = M.reduce_from_tensor_model_parallel_region(y)
    if y.dim() == 3 and sp:
        y = M.gather_from_sequence_parallel_region(y, tensor_parallel_output_grad=False)
    return y


class T(torch.nn.Module):
    # spmd: y: {tp: P}
    def forward(self, y):
        if self.sp:
            y = M.reduce_scatter_to_sequence_parallel_region(y)
        else:
            y = M.reduce_from_tensor_model_parallel_region(y)
        if y.dim() == 3 and self.sp:
            y = M.gather_from_sequence_parallel_region(y, tensor_parallel_output_grad=False)
        return y
