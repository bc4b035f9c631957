# lightly-ai/lightly issue 1977 (commit d8a260d5)
"""Barlow Twins loss with the cross-correlation of the global batch; the model is wrapped in DDP."""
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import nn as dist_nn


class BarlowTwinsLoss(torch.nn.Module):
    def __init__(self, lambda_param: float = 5e-3, gather_distributed: bool = False):
        super().__init__()
        self.lambda_param = lambda_param
        self.gather_distributed = gather_distributed

    def forward(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        # z_a, z_b: outputs of an affine-free SyncBatchNorm, equal batch size on all ranks
        N = z_a.size(0)
        c = z_a.T @ z_b / N
        if self.gather_distributed and dist.is_initialized():
            world_size = dist.get_world_size()
            if world_size > 1:
                c = c / world_size
                c = dist_nn.all_reduce(c)
        invariance_loss = (torch.diagonal(c) - 1).pow(2).sum()
        redundancy_reduction_loss = _off_diagonal(c).pow(2).sum()
        return invariance_loss + self.lambda_param * redundancy_reduction_loss


def _off_diagonal(x: Tensor) -> Tensor:
    n, m = x.shape
    assert n == m
    return x.flatten()[:-1].view(n - 1, n + 1)[:, 1:].flatten()


class BarlowTwins(torch.nn.Module):
    def __init__(self, backbone, projection_head, out_dim):
        super().__init__()
        self.backbone, self.projection_head = backbone, projection_head
        self.norm = torch.nn.SyncBatchNorm(out_dim, affine=False)

    def forward(self, x0, x1):
        z0 = self.norm(self.projection_head(self.backbone(x0).flatten(start_dim=1)))
        z1 = self.norm(self.projection_head(self.backbone(x1).flatten(start_dim=1)))
        return z0, z1


def training_step(ddp_model, criterion: BarlowTwinsLoss, optimizer, batch):
    (x0, x1), _, _ = batch
    z0, z1 = ddp_model(x0, x1)
    loss = criterion(z0, z1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    reported = dist_nn.all_reduce(loss.detach()) / dist.get_world_size()
    return reported
