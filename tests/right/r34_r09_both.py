import torch
import torch.distributed as dist


def total(x, group=None):
    dist.all_reduce(x, group=group)
    return x


def normalise(x, mask, group):
    # tokens of the job; rows of the group
    tokens = total(mask.sum().float())
    x = x / tokens
    return x.chunk(dist.get_world_size(group))[dist.get_rank(group)]
