# Right: samples are gathered to the same global tensor first; the mask is of all ranks' samples
import torch
import torch.distributed as dist
import torch.nn.functional as F


@torch.no_grad()
def concat_all_gather(t):
    out = [torch.ones_like(t) for _ in range(dist.get_world_size())]
    dist.all_gather(out, t)
    return torch.cat(out)


@torch.no_grad()
def queue_update(queue, ptr, keys, valid):
    keys, valid = concat_all_gather(keys), concat_all_gather(valid)
    keep = valid.nonzero().flatten()
    if len(keep) > 0:
        new = keys[keep]
        n = min(new.shape[0], queue.shape[0] - ptr)
        queue[ptr : ptr + n] = new[:n]
        check = queue.sum()
        dist.all_reduce(check, op=dist.ReduceOp.MAX)
        ptr = (ptr + n) % queue.shape[0]
    return ptr
