# RIGHT: LARS: trust ratio divides by the gradient norm (no decay)
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


class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, eta=1e-3):
        super().__init__(params, dict(lr=lr, eta=eta))

    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            for p in g["params"]:
                p.add_(p.grad * (g["eta"] * p.norm() / p.grad.norm()), alpha=-g["lr"])

def train(net, loader, lr):
    model = SumDDP(net)
    opt = LARS(model.parameters(), lr)
    for x, y in loader:
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        model.sync()
        opt.step()
