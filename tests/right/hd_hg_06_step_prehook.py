# RIGHT: an optimizer step pre-hook divides
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


def average(opt, args, kwargs):
    n = dist.get_world_size()
    for group in opt.param_groups:
        for p in group["params"]:
            if p.grad is not None:
                p.grad.div_(n)


def train(net, loader, lr):
    model = SumDDP(net)
    opt = torch.optim.AdamW(model.parameters(), lr=lr)
    opt.register_step_pre_hook(average)
    for x, y in loader:
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        model.sync()
        opt.step()
