# x.dim() != 1 raises: the last dim is dim 0
import torch
import torch.distributed as dist


def gather_last(x, group):
    if x.dim() != 1:
        raise ValueError("1-D only")
    sizes = list(x.size())
    sizes[-1] *= dist.get_world_size(group)
    out = torch.empty(sizes, dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(out, x.contiguous(), group=group)
    return out
