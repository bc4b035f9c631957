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
        loss_grads = torch.cat([g.flatten() for g in grads])
        dist.all_reduce(loss_grads, op=dist.ReduceOp.AVG)
        at = 0
        for p, g in zip(params, grads):
            p.grad = loss_grads[at:at + g.numel()].view_as(g)
            at += g.numel()
        optimizer.step()
