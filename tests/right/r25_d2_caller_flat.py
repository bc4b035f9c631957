# the only caller passes flattened 1-D tensors
import torch
import torch.distributed as dist


def gather_last(x, group):
    sizes = list(x.size())
    sizes[-1] *= dist.get_world_size(group)
    out = torch.empty(sizes, dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(out, x.contiguous(), group=group)
    return out


def gather_all(params, group):
    return [gather_last(p.flatten(), group) for p in params]
