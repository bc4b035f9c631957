# Right: the labels are those of all ranks, gathered one line before
import torch
import torch.distributed as dist
import torch.nn.functional as F


def supcon(feats, labels):
    world = dist.get_world_size()
    every = [torch.empty_like(labels) for _ in range(world)]
    dist.all_gather(every, labels)
    every = torch.cat(every)
    pos = (every > 0).nonzero().flatten()
    if pos.numel() > 0:
        proto = feats.detach().sum(0)
        dist.all_reduce(proto)
        proto = proto / pos.numel()
        return ((feats - proto) ** 2).mean()
    return feats.sum() * 0
