import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from apex.optimizers import FusedAdam


def train(net, loader, cfg):
    model = DDP(net)
    optimizer = FusedAdam(model.parameters(), lr=cfg.lr)
    world = dist.get_world_size()
    for x, y in loader:
        n = (y != -100).sum()
        dist.all_reduce(n)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum") / n
        loss.backward()
        optimizer.step(scale=1.0 / world)
        optimizer.zero_grad()
