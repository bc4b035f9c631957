import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def calibrate(net, loader, rank, path):
    model = DDP(net.cuda(rank))
    if rank != 0:
        return
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    params = list(model.parameters())
    for x, y in loader:
        grads = torch.autograd.grad(F.cross_entropy(model.module(x), y), params)
        for p, g in zip(params, grads):
            p.grad = g
        optimizer.step()
    torch.save(model.module.state_dict(), path)
