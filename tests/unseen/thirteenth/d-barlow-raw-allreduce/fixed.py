"""Barlow Twins loss with the cross-correlation matrix averaged over all ranks.

Source: lightly-ai/lightly issue #1977, PR #1980.
"""
import torch
import torch.distributed as dist
import torch.distributed.nn
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class BarlowTwinsLoss(nn.Module):
    def __init__(self, dim, lambda_param=5e-3, gather_distributed=True):
        super().__init__()
        self.lambda_param = lambda_param
        self.gather_distributed = gather_distributed
        self.bn = nn.SyncBatchNorm(dim, affine=False)

    def forward(self, z_a, z_b):
        n, d = z_a.shape
        c = self.bn(z_a).T @ self.bn(z_b) / n
        if self.gather_distributed and dist.is_initialized():
            world_size = dist.get_world_size()
            if world_size > 1:
                c = c / world_size
                c = torch.distributed.nn.all_reduce(c)
        diag = torch.eye(d, device=c.device, dtype=torch.bool)
        on_diag = (c[diag] - 1).pow(2).sum()
        off_diag = c[~diag].pow(2).sum()
        return on_diag + self.lambda_param * off_diag


def train(backbone, loader, dim, device):
    model = DDP(backbone.to(device), device_ids=[device])
    criterion = BarlowTwinsLoss(dim).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.06)
    for x0, x1 in loader:
        z0, z1 = model(torch.cat([x0, x1]).to(device)).chunk(2)
        loss = criterion(z0, z1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
