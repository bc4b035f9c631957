import torch
import torch.distributed as dist


def labels_of(ids, group):
    n, rank = dist.get_world_size(group), dist.get_rank(group)
    ids = ids.chunk(n, dim=1)[rank]
    labels = ids.roll(-1, dims=1)
    labels.select(1, -1).fill_(-100)
    return ids, labels
