import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def mean(g):
    world = dist.get_world_size()
    copies = [g.clone() for _ in range(world)]
    parts = [torch.empty_like(g) for _ in range(world)]
    dist.all_to_all(parts, copies)
    return torch.stack(parts).mean(0)


def train(loader, rank):
    model = DDP(nn.Linear(8, 2).cuda(rank))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    params = [p for p in model.parameters() if p.requires_grad]
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        grads = torch.autograd.grad(loss, params)
        for p, g in zip(params, grads):
            p.grad = mean(g)
        optimizer.step()
