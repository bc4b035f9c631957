# Reduced from lightly loss/barlow_twins_loss.py (lightly-ai/lightly issue 1977, read).
# With gather_distributed=True the cross-correlation matrix is averaged over the ranks and each rank
# computes the whole loss from it; DDP then averages the gradients.
# What happens: the all-reduce is in place and unknown to autograd, each rank's gradient is its own
# share and the average is 1 / world_size of the true gradient.
import torch
import torch.distributed as dist
from torch import nn


def _normalize(z_a, z_b):
    combined = torch.stack([z_a, z_b], dim=0)  # 2, N, D
    return nn.functional.batch_norm(combined.flatten(0, 1), None, None, training=True).view_as(combined)


def _off_diagonal(x):
    n, m = x.shape
    assert n == m
    return x.flatten()[:-1].view(n - 1, n + 1)[:, 1:].flatten()


class BarlowTwinsLoss(nn.Module):
    def __init__(self, lambda_param=5e-3, gather_distributed=False):
        super().__init__()
        self.lambda_param = lambda_param
        self.gather_distributed = gather_distributed

    def forward(self, z_a, z_b):
        z_a_norm, z_b_norm = _normalize(z_a, z_b)
        N = z_a.size(0)
        # cross-correlation matrix
        c = z_a_norm.T @ z_b_norm
        c = c / N
        if self.gather_distributed and dist.is_initialized():
            world_size = dist.get_world_size()
            if world_size > 1:
                c = c / world_size
                dist.all_reduce(c)  # BUG

        invariance_loss = torch.diagonal(c).add(-1).pow(2).sum()
        redundancy_reduction_loss = _off_diagonal(c).pow(2).sum()
        return invariance_loss + self.lambda_param * redundancy_reduction_loss


def train_step(ddp_model, optimizer, x0, x1, criterion=BarlowTwinsLoss(gather_distributed=True)):
    z0, z1 = ddp_model(torch.cat([x0, x1])).chunk(2)
    loss = criterion(z0, z1)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()
