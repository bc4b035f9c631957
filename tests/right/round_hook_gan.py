"""Every backward pass sums, or what the rounds without the flag leave is dropped."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class Synced(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        self.require_sync = True
        for p in module.parameters():
            p.register_hook(self._reduce)

    def _reduce(self, grad):
        if self.require_sync:
            dist.all_reduce(grad, op=dist.ReduceOp.AVG)
        return grad

    def forward(self, x):
        return self.module(x)


def train(gen: Synced, disc: Synced, loader, opt_g, opt_d):
    for real in loader:
        fake = gen(torch.randn(real.size(0), 128, device=real.device))
        # discriminator
        opt_d.zero_grad()
        (F.softplus(disc(fake.detach())) + F.softplus(-disc(real))).mean().backward()
        opt_d.step()
        # generator: what flows into the discriminator is thrown away
        opt_g.zero_grad()
        disc.require_sync = False
        F.softplus(-disc(fake)).mean().backward()
        disc.require_sync = True
        opt_g.step()
