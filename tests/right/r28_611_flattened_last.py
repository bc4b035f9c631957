# Right: x was flattened before the gather
import torch
import torch.distributed as dist


def gather_param(p, group):
    x = p.detach().flatten()
    n = dist.get_world_size(group)
    sizes = list(x.size())
    sizes[-1] = sizes[-1] * n
    out = torch.empty(sizes, dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(out, x.contiguous(), group=group)
    return out
