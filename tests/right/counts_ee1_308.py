import torch
import torch.distributed as dist


def both(x, mask, group):
    # x, mask: this rank's tokens
    s, n = (x * mask).sum(), mask.sum()
    own = s.clone()
    dist.all_reduce(s, group=group)
    dist.all_reduce(n, group=group)
    return s / n, own / mask.sum()
