"""Barlow Twins loss over the batch of all ranks; the model is wrapped in DistributedDataParallel."""
import torch
import torch.distributed as dist
import torch.distributed.nn
from torch import Tensor, nn


class BarlowTwinsLoss(nn.Module):
    def __init__(self, dim: int, lambda_param: float = 5e-3, gather_distributed: bool = False):
        super().__init__()
        self.lambda_param = lambda_param
        self.gather_distributed = gather_distributed
        self.norm = nn.SyncBatchNorm(dim, affine=False)

    def forward(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        z_a_norm, z_b_norm = self.norm(z_a), self.norm(z_b)

        # cross-correlation matrix
        c = z_a_norm.T @ z_b_norm / z_a.size(0)

        if self.gather_distributed and dist.is_initialized():
            world_size = dist.get_world_size()
            if world_size > 1:
                c = c / world_size
                c = torch.distributed.nn.all_reduce(c)

        invariance_loss = torch.diagonal(c).add(-1).pow(2).sum()
        redundancy_reduction_loss = off_diagonal(c).pow(2).sum()
        return invariance_loss + self.lambda_param * redundancy_reduction_loss


def off_diagonal(x: Tensor) -> Tensor:
    n, _ = x.shape
    return x.flatten()[:-1].view(n - 1, n + 1)[:, 1:].flatten()
