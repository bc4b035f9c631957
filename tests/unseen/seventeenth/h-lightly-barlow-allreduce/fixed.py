# Source: lightly-ai/lightly commit d8a260d5 (PR #1980, issue #1977), lightly/loss/barlow_twins_loss.py
# The cross-correlation matrix is summed over the ranks with the in-place, not differentiable
# all_reduce. Every rank then backpropagates only its own 1/world_size share, and DDP averages:
# the gradient is 1/world_size of the one on the global batch.
# Repair: torch.distributed.nn.all_reduce.
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.distributed import nn as dist_nn
from torch.nn.parallel import DistributedDataParallel


class BarlowTwinsLoss(torch.nn.Module):
    def __init__(self, lambda_param: float = 5e-3, gather_distributed: bool = False):
        super().__init__()
        self.lambda_param = lambda_param
        self.gather_distributed = gather_distributed

    def forward(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        z_a_norm, z_b_norm = _normalize(z_a), _normalize(z_b)
        N = z_a.size(0)

        # cross-correlation matrix of the local batch
        c = z_a_norm.T @ z_b_norm
        c.div_(N)

        if self.gather_distributed and dist.is_initialized():
            world_size = dist.get_world_size()
            if world_size > 1:
                c = dist_nn.all_reduce(c / world_size)

        invariance_loss = torch.diagonal(c).add(-1).pow(2).sum()
        redundancy_reduction_loss = _off_diagonal(c).pow(2).sum()
        return invariance_loss + self.lambda_param * redundancy_reduction_loss


def _normalize(z: Tensor) -> Tensor:
    return F.batch_norm(z, running_mean=None, running_var=None, training=True)


def _off_diagonal(x: Tensor) -> Tensor:
    n, m = x.shape
    assert n == m
    return x.flatten()[:-1].view(n - 1, n + 1)[:, 1:].flatten()


def train_step(model: DistributedDataParallel, x0: Tensor, x1: Tensor, criterion: BarlowTwinsLoss, optimizer):
    loss = criterion(model(x0), model(x1))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
