import torch
import torch.distributed as dist
import torch.nn as nn


class Frozen(nn.Module):
    """`share_grads` is from the time when the backbone was trained."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)

    def share_grads(self):
        for p in self.module.parameters():
            dist.all_reduce(p.grad)


def probe(backbone, head, loader, loss_fn):
    model = Frozen(backbone)
    for p in model.parameters():
        p.requires_grad_(False)
    head = torch.nn.parallel.DistributedDataParallel(head)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    for x, y in loader:
        optimizer.zero_grad()
        loss_fn(head(model(x)), y).backward()
        optimizer.step()
