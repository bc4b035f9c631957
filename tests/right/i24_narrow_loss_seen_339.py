import torch
import torch.nn.functional as F
import torch.distributed as dist


def loss(model, ids, group):
    n, rank = dist.get_world_size(group), dist.get_rank(group)
    ids = ids.chunk(n, dim=1)[rank]
    labels = ids.roll(-1, dims=1)
    length = ids.size(1) - 1
    return F.cross_entropy(model(ids).narrow(1, 0, length).flatten(0, 1), labels.narrow(1, 0, length).flatten())
