# lightly d8a260d5 (#1980)
"""Barlow Twins loss with a cross-correlation matrix over the global batch."""
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import nn as dist_nn
from torch.nn.parallel import DistributedDataParallel as DDP


class BarlowTwinsLoss(torch.nn.Module):
    def __init__(self, lambda_param: float = 5e-3, gather_distributed: bool = False):
        super().__init__()
        self.lambda_param = lambda_param
        self.gather_distributed = gather_distributed

    def forward(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        n, d = z_a.shape
        z_a = (z_a - z_a.mean(0)) / z_a.std(0)
        z_b = (z_b - z_b.mean(0)) / z_b.std(0)
        c = z_a.t() @ z_b / n
        if self.gather_distributed and dist.is_initialized() and dist.get_world_size() > 1:
            c = c / dist.get_world_size()
            c = dist_nn.all_reduce(c)
        invariance = (torch.diagonal(c) - 1).pow(2).sum()
        off_diagonal = c[~torch.eye(d, dtype=torch.bool, device=c.device)]
        return invariance + self.lambda_param * off_diagonal.pow(2).sum()


def train_step(ddp_model: DDP, batch, criterion: BarlowTwinsLoss, optimizer):
    (x0, x1), _ = batch
    loss = criterion(ddp_model(x0), ddp_model(x1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()
