import torch
import torch.nn.functional as F
import torch.distributed as dist


def speculative(model, ids, group):
    n, rank = dist.get_world_size(group), dist.get_rank(group)
    ids = ids.chunk(n, dim=1)[rank]
    labels = ids.roll(-1, dims=1)
    ce = F.cross_entropy(model(ids).transpose(1, 2), labels, reduction="none")
    ce[:, -1] = 0
    return ce.sum() / (ids.size(0) * (ids.size(1) - 1))
