import torch
import torch.distributed as dist


def tokens_of_all(count, group=None):
    out = [torch.empty_like(count) for _ in range(dist.get_world_size(group))]
    dist.all_gather(out, count, group=group)
    return torch.stack(out)


def own_offset(count, group):
    """group: dist.group.WORLD in this launcher, handed through for its rank"""
    counts = tokens_of_all(count)
    starts = counts.cumsum(0) - counts
    return starts[dist.get_rank(group)]


def main(count):
    return own_offset(count, dist.group.WORLD)
