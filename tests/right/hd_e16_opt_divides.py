# RIGHT: wrapper sums; the optimizer step divides the gradients by world size (grad_scale) before the update, as apex with gradient_average in the optimizer
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


class ScaledSGD(torch.optim.SGD):
    def __init__(self, params, lr, grad_divisor):
        super().__init__(params, lr=lr)
        self.grad_divisor = grad_divisor

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.grad.div_(self.grad_divisor)
        super().step()


def train(net, loader):
    model = SumDDP(net)
    opt = ScaledSGD(model.parameters(), 0.1, dist.get_world_size())
    for x, y in loader:
        F.cross_entropy(model(x), y).backward()
        model.sync()
        opt.step()
        opt.zero_grad()
