import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


class EMAWrapper(nn.Module):
    """`mean_of_grads` is what an ablation used."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)

    def mean_of_grads(self):
        for p in self.module.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)


def build(net, rank):
    return DDP(net.to(rank), device_ids=[rank])


def train(net, loader, loss_fn, rank):
    ddp = build(net, rank)
    model = EMAWrapper(ddp)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for x, y in loader:
        optimizer.zero_grad()
        loss_fn(model(x), y).backward()
        optimizer.step()
