"""Evaluation on one rank with the module inside the wrapper, a decision that all ranks take together."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def train(net, dataset, held_out, rank):
    model = DDP(net.cuda(rank), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        for x, y in DataLoader(dataset, sampler=DistributedSampler(dataset), batch_size=8):
            loss = F.cross_entropy(model(x.cuda(rank)), y.cuda(rank))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            with torch.no_grad():
                right = sum((model.module(x.cuda()).argmax(1) == y.cuda()).sum().item() for x, y in held_out)
            print(right)
        stop = torch.tensor(int(rank == 0 and right == len(held_out)), device=rank)
        dist.broadcast(stop, src=0)
        if stop.item():
            break
    dist.barrier()
