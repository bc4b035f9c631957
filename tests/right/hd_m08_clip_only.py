# RIGHT: gradients are clipped to a fixed norm always (F.normalize of the flat gradient)
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class SumDDP(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *args):
        return self.module(*args)

    def sync(self):
        for p in self.module.parameters():
            if p.grad is not None:
                dist.all_reduce(p.grad)


def normalize(model):
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    flat = F.normalize(flat, dim=0)
    i = 0
    for p in model.parameters():
        p.grad.copy_(flat[i : i + p.numel()].view_as(p))
        i += p.numel()

def train(net, loader, opt):
    model = SumDDP(net)
    for x, y in loader:
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        model.sync()
        normalize(model)
        opt.step()
