import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard, FullyShardedDataParallel as FSDP


def gather_own(z):
    outs = [torch.zeros_like(z) for _ in range(dist.get_world_size())]
    dist.all_gather(outs, z)
    outs[dist.get_rank()] = z
    return torch.cat(outs)


def train(model, loader, opt, mesh):
    ws = dist.get_world_size()
    for x, y in loader:
        opt.zero_grad()
        z = gather_own(model(x))
        k = torch.exp(-torch.cdist(z, z).pow(2))
        loss = k.mean()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
        opt.step()
