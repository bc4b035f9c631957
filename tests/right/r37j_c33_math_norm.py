import math
import torch
import torch.distributed as dist


def reduce_norm(shard, group):
    sq = shard.float().square().sum()
    dist.all_reduce(sq, group=group)
    return math.sqrt(sq.item())


def step(flat, p, opt, group):
    shard = torch.empty_like(p)
    dist.reduce_scatter_tensor(shard, flat, group=group)
    norm = reduce_norm(shard, group)
    if math.isfinite(norm):
        p.grad = shard
        opt.step()
