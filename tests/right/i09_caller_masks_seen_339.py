import torch
import torch.distributed as dist


def labels_of(ids, group):
    n, rank = dist.get_world_size(group), dist.get_rank(group)
    ids = ids.chunk(n, dim=1)[rank]
    return ids, ids.roll(-1, dims=1)


def batch(ids, group):
    ids, labels = labels_of(ids, group)
    labels[:, -1] = -100
    return {"input_ids": ids, "labels": labels}
