# a helper views the buffer as [n, *shape] and puts the parts side by side
import torch
import torch.distributed as dist


def reorder(out, shape, n):
    return out.view(n, *shape).transpose(0, 1).reshape(shape[0], -1)


def gather_last(x, group):
    n = dist.get_world_size(group)
    out = torch.empty(x.shape[0], x.shape[1] * n, dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(out, x.contiguous(), group=group)
    return reorder(out, x.shape, n)
