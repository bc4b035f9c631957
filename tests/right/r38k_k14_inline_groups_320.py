import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from opt import build_optimizer


def train(net, loader, cfg):
    model = DDP(net)
    optimizer = build_optimizer(model, cfg)
    world = dist.get_world_size()
    for x, y in loader:
        n = (y != -100).sum()
        dist.all_reduce(n)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum") / n
        loss.backward()
        for g in optimizer.param_groups:
            for p in g["params"]:
                p.grad.mul_(world)
        optimizer.step()
        optimizer.zero_grad()
