# Right: z / n is summed over the n copies, so each rank gets its slice of the mean of the copies, which is z itself (bits made equal).
# scatter of an equal value by hand: reduce-scatter of copies divided by their number
import torch
import torch.distributed as dist
from megatron.core import parallel_state as ps
from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region


@torch.no_grad()
def average_part(x, w):
    z = reduce_from_tensor_model_parallel_region(torch.nn.functional.linear(x, w))
    n = ps.get_tensor_model_parallel_world_size()
    out = z.new_empty((z.shape[0] // n,) + z.shape[1:])
    dist.reduce_scatter_tensor(out, z / n, group=ps.get_tensor_model_parallel_group())
    return out
