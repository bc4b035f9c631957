import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def train(loader, rank):
    model = DDP(nn.Linear(8, 2).cuda(rank))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    params = [p for p in model.parameters() if p.requires_grad]
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        grads = torch.autograd.grad(loss, params)
        accum = torch.cat([g.reshape(-1) for g in grads])
        dist.all_reduce(accum)
        accum /= dist.get_world_size()
        offset = 0
        for p, g in zip(params, grads):
            n = p.numel()
            p.grad = accum[offset:offset + n].view_as(g)
            offset += n
        optimizer.step()
