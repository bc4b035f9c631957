# only the maximum over all values is taken: order does not matter
import torch
import torch.distributed as dist


def amax(x, group):
    sizes = list(x.size())
    sizes[-1] *= dist.get_world_size(group)
    out = torch.empty(sizes, dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(out, x.contiguous(), group=group)
    return out.abs().max()
