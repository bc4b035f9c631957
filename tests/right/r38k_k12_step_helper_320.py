import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from opt import build_optimizer


def optimizer_step(optimizer):
    world = dist.get_world_size()
    for g in optimizer.param_groups:
        for p in g["params"]:
            if p.grad is not None:
                p.grad.mul_(world)
    optimizer.step()
    optimizer.zero_grad()


def train(net, loader, cfg):
    model = DDP(net)
    optimizer = build_optimizer(model, cfg)
    for x, y in loader:
        n = (y != -100).sum()
        dist.all_reduce(n)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum") / n
        loss.backward()
        optimizer_step(optimizer)
