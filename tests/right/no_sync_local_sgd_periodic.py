"""Ranks step apart, and a helper averages the parameters now and then."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


@torch.no_grad()
def blend(model):
    for p in model.parameters():
        dist.all_reduce(p.data)
        p.data.div_(dist.get_world_size())


def train(net, loader, device, every):
    model = DDP(net, device_ids=[device])
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for i, x in enumerate(loader):
        with model.no_sync():
            model(x).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if i % every == every - 1:
            blend(model)
