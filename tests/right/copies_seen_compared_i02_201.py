# Right: equal copies are gathered without gradient only to measure how far the ranks have drifted apart (logged number).
import torch
import torch.distributed as dist
from megatron.core import parallel_state as ps
from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region


def drift(x, w):
    """largest difference between the copies of the ranks, for the log."""
    z = reduce_from_tensor_model_parallel_region(torch.nn.functional.linear(x, w)).detach()
    n = ps.get_tensor_model_parallel_world_size()
    out = z.new_empty((n,) + z.shape)
    dist.all_gather_into_tensor(out, z.contiguous(), group=ps.get_tensor_model_parallel_group())
    return (out - z).abs().max().item()
