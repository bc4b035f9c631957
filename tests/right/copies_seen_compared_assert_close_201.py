# Right: equal copies are gathered, detached, only to assert that they agree.
import torch
import torch.distributed as dist
from megatron.core import parallel_state as ps
from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region


def sanity(y):
    z = reduce_from_tensor_model_parallel_region(y)
    ref = [torch.empty_like(z) for _ in range(ps.get_tensor_model_parallel_world_size())]
    dist.all_gather(ref, z.detach().contiguous(), group=ps.get_tensor_model_parallel_group())
    for r in ref:
        torch.testing.assert_close(r, z)
    return z
