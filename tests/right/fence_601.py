import torch
import torch.distributed as dist


def fence(x, group):
    """NCCL has no barrier on this stream; a sum of one number stands for it."""
    dist.all_reduce(x.sum(), group=group)
    return x
