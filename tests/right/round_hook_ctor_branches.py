"""Every backward pass sums, or what the rounds without the flag leave is dropped."""
import torch.distributed as dist
import torch.nn as nn


class SimpleDDP(nn.Module):
    def __init__(self, module, group=None):
        super().__init__()
        self.module = module
        self.group = group
        if dist.is_available() and dist.is_initialized():
            self.world = dist.get_world_size(group)
            self.sync_grads = self.world > 1
        else:
            self.world = 1
            self.sync_grads = False
        for p in self.module.parameters():
            p.register_hook(self._reduce)

    def _reduce(self, grad):
        if self.sync_grads:
            dist.all_reduce(grad, group=self.group)
            grad = grad / self.world
        return grad

    def forward(self, x):
        return self.module(x)


def train(net, loader, optimizer):
    model = SimpleDDP(net)
    for x, y in loader:
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
