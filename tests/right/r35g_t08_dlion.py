import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from dlion.optim import DLion

# Distributed Lion: every worker updates its own momentum and the optimizer votes over the signs.


def train(loader, rank):
    model = DDP(nn.Linear(8, 2).cuda(rank))
    optimizer = DLion(model.parameters(), lr=1e-4)
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        grads = torch.autograd.grad(loss, list(model.parameters()))
        for p, g in zip(model.parameters(), grads):
            p.grad = g
        optimizer.step()
