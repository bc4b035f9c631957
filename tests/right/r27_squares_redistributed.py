import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate


def squared_norm(grads):
    total = sum(g.pow(2).sum() for g in grads)
    if isinstance(total, DTensor):
        total = total.redistribute(placements=[Replicate()])
        total = total.to_local()
    return total


@torch.no_grad()
def clip(parameters, most):
    norm = squared_norm([p.grad for p in parameters]).sqrt()
    for p in parameters:
        p.grad.mul_((most / (norm + 1e-6)).clamp(max=1.0))


def train(net, loader):
    fully_shard(net)
    optimizer = torch.optim.AdamW(net.parameters())
    for batch in loader:
        net(batch).mean().backward()
        clip(list(net.parameters()), 1.0)
        optimizer.step()
        optimizer.zero_grad()
