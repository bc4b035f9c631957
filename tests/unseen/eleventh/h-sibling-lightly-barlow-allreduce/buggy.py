"""Barlow Twins loss with the cross-correlation of the global batch."""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.nn import functional as dist_nn


class BarlowTwinsLoss(nn.Module):
    def __init__(self, lambda_param=5e-3, gather_distributed=False):
        super().__init__()
        self.lambda_param, self.gather_distributed = lambda_param, gather_distributed

    def forward(self, z_a, z_b):
        n = z_a.size(0)
        z_a = (z_a - z_a.mean(0)) / z_a.std(0)
        z_b = (z_b - z_b.mean(0)) / z_b.std(0)
        c = z_a.t() @ z_b / n  # [d, d] of the local batch
        if self.gather_distributed and dist.is_initialized():
            world_size = dist.get_world_size()
            if world_size > 1:
                c = c / world_size
                dist.all_reduce(c)  # BUG: autograd does not see the sum, 1/world of the gradient
        on_diag = (torch.diagonal(c) - 1).pow(2).sum()
        off_diag = c.pow(2).sum() - torch.diagonal(c).pow(2).sum()
        return on_diag + self.lambda_param * off_diag


def train_step(ddp_model, criterion, x0, x1, optimizer):
    loss = criterion(ddp_model(x0), ddp_model(x1))
    loss.backward()
    optimizer.step()
