# RIGHT: AdamW subclass with attribute: n given by dist.get_world_size() at the call
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


class MeanAdamW(torch.optim.AdamW):
    def __init__(self, params, lr, n_ranks):
        super().__init__(params, lr=lr)
        self.n_ranks = n_ranks

    def step(self, closure=None):
        for group in self.param_groups:
            torch._foreach_div_([p.grad for p in group["params"] if p.grad is not None], self.n_ranks)
        return super().step(closure)

def train(net, loader, lr):
    model = SumDDP(net)
    opt = MeanAdamW(model.parameters(), lr, dist.get_world_size())
    for x, y in loader:
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        model.sync()
        opt.step()
