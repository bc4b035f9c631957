"""Every backward pass sums, or what the rounds without the flag leave is dropped."""
import torch.distributed as dist
import torch.nn as nn


class HookedDDP(nn.Module):
    """Sums or averages gradients, by what the loss is normalised with."""

    def __init__(self, module):
        super().__init__()
        self.module = module
        self.reduce_mean = True
        for p in module.parameters():
            p.register_hook(self._hook)

    def use_token_mean(self):
        # the loss is already divided by the global number of tokens
        self.reduce_mean = False

    def _hook(self, grad):
        grad = grad.contiguous()
        if self.reduce_mean:
            dist.all_reduce(grad, op=dist.ReduceOp.AVG)
        else:
            dist.all_reduce(grad, op=dist.ReduceOp.SUM)
        return grad

    def forward(self, x):
        return self.module(x)


def train(model: HookedDDP, loader, optimizer):
    for x, y in loader:
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
