# Right: equal copies are exchanged under no_grad only to compare them slice by slice across ranks.
# all-gather of equal values, of which each takes its own: rank r's part of rank r's copy
import torch
import torch.distributed as dist
from megatron.core import parallel_state as ps
from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region


@torch.no_grad()
def a2a_copies(x, w):
    """every rank gets slice r of all copies, and compares."""
    z = reduce_from_tensor_model_parallel_region(torch.nn.functional.linear(x, w))
    out = torch.empty_like(z)
    dist.all_to_all_single(out, z.contiguous(), group=ps.get_tensor_model_parallel_group())
    parts = out.chunk(ps.get_tensor_model_parallel_world_size())
    return max((p - parts[0]).abs().max().item() for p in parts)
