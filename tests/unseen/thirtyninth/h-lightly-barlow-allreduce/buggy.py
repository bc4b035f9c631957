"""Barlow Twins on several GPUs."""
import torch
import torch.distributed as dist
import torch.distributed.nn
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class BarlowTwinsLoss(nn.Module):
    def __init__(self, lambda_param=5e-3, gather_distributed=False):
        super().__init__()
        self.lambda_param, self.gather_distributed = lambda_param, gather_distributed

    def forward(self, z_a, z_b):
        # z_a, z_b: already batch-normalised over all ranks
        n = z_a.size(0)
        c = z_a.T @ z_b / n
        if self.gather_distributed and dist.is_initialized():
            world_size = dist.get_world_size()
            if world_size > 1:
                c = c / world_size
                dist.all_reduce(c)  # BUG
        invariance = (torch.diagonal(c) - 1).pow(2).sum()
        off_diagonal = c.pow(2).sum() - torch.diagonal(c).pow(2).sum()
        return invariance + self.lambda_param * off_diagonal


class BarlowTwins(nn.Module):
    def __init__(self, backbone, in_dim, dim):
        super().__init__()
        self.backbone = backbone
        self.projection = nn.Linear(in_dim, dim, bias=False)
        self.norm = nn.SyncBatchNorm(dim, affine=False)

    def forward(self, x):
        return self.norm(self.projection(self.backbone(x).flatten(1)))


def train(backbone, in_dim, loader, device):
    model = DistributedDataParallel(BarlowTwins(backbone, in_dim, 2048).to(device), device_ids=[device])
    criterion = BarlowTwinsLoss(gather_distributed=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.06, momentum=0.9)
    for x0, x1 in loader:
        z = model(torch.cat([x0, x1]).to(device))
        z0, z1 = z.chunk(2)
        loss = criterion(z0, z1)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
