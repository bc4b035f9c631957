import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def train(loader, rank):
    dist.init_process_group("gloo", rank=0, world_size=1)
    model = DDP(nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    params = list(model.parameters())
    for x, y in loader:
        grads = torch.autograd.grad(F.cross_entropy(model(x), y), params)
        for p, g in zip(params, grads):
            p.grad = g
        optimizer.step()
