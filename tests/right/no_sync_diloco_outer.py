"""Ranks step apart, and an outer step averages what they have moved every few rounds."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, loader, device, inner):
    model = DDP(net, device_ids=[device])
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    start = [p.detach().clone() for p in model.parameters()]
    for i, x in enumerate(loader, 1):
        with model.no_sync():
            model(x).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if i % inner == 0:
            for p, s in zip(model.parameters(), start):
                delta = s - p.detach()
                dist.all_reduce(delta, op=dist.ReduceOp.AVG)
                s.sub_(0.7 * delta)
                p.data.copy_(s)
