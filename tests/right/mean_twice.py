import torch.distributed as dist


def mean_twice(x, group):
    n = dist.get_world_size(group)
    dist.all_reduce(x, group=group)
    x /= n
    dist.all_reduce(x, group=group)
    x /= n
    return x
