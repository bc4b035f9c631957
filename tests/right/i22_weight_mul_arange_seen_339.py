import torch
import torch.nn.functional as F
import torch.distributed as dist


def loss(model, ids, group):
    n, rank = dist.get_world_size(group), dist.get_rank(group)
    ids = ids.chunk(n, dim=1)[rank]
    labels = ids.roll(-1, dims=1)
    valid = torch.arange(ids.size(1), device=ids.device) < ids.size(1) - 1
    ce = F.cross_entropy(model(ids).transpose(1, 2), labels, reduction="none")
    return (ce * valid).sum() / (valid.sum() * ids.size(0))
