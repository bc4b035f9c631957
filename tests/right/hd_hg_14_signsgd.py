# RIGHT: sign SGD: the update depends on the sign of the summed gradient only, the factor is gone
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class SumDDP(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for p in module.parameters():
            dist.broadcast(p.data, 0)

    def forward(self, *args):
        return self.module(*args)

    def sync(self):
        for p in self.module.parameters():
            if p.grad is not None:
                dist.all_reduce(p.grad)


def train(net, loader, lr):
    model = SumDDP(net)
    for x, y in loader:
        model.zero_grad()
        F.cross_entropy(model(x), y).backward()
        model.sync()
        with torch.no_grad():
            for p in model.parameters():
                p.sub_(lr * p.grad.sign())
