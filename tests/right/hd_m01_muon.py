# RIGHT: Muon: the update is orthogonalized, a factor of the gradient is gone (norm divided out before Newton-Schulz), momentum is linear
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


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.95):
        super().__init__(params, dict(lr=lr, momentum=momentum))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                buf = self.state[p].setdefault("buf", torch.zeros_like(p))
                buf.mul_(group["momentum"]).add_(p.grad)
                x = buf / buf.norm()
                for _ in range(5):
                    a = x @ x.t()
                    x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
                p.add_(x, alpha=-group["lr"])

def train(net, loader, lr):
    model = SumDDP(net)
    opt = Muon(model.parameters(), lr)
    for x, y in loader:
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        model.sync()
        opt.step()
