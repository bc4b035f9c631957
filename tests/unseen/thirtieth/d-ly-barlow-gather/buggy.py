"""Self-supervised pre-training with redundancy reduction over the global batch."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torchvision
from torch.nn.parallel import DistributedDataParallel as DDP


def _normalize(z_a, z_b):
    combined = torch.stack([z_a, z_b], dim=0)
    normalized = nn.functional.batch_norm(
        combined.flatten(0, 1), running_mean=None, running_var=None, training=True
    ).view_as(combined)
    return normalized[0], normalized[1]


def off_diagonal(x):
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
        n = z_a.size(0)
        c = z_a_norm.T @ z_b_norm
        c = c / n

        if self.gather_distributed and dist.is_initialized():
            world_size = dist.get_world_size()
            if world_size > 1:
                c = c / world_size
                dist.all_reduce(c)  # BUG

        invariance_loss = torch.diagonal(c).add(-1).pow(2).sum()
        redundancy_reduction_loss = off_diagonal(c).pow(2).sum()
        return invariance_loss + self.lambda_param * redundancy_reduction_loss


class BarlowTwins(nn.Module):
    def __init__(self, dim=2048):
        super().__init__()
        resnet = torchvision.models.resnet50()
        self.backbone = nn.Sequential(*list(resnet.children())[:-1])
        self.projection_head = nn.Sequential(
            nn.Linear(2048, dim, bias=False), nn.BatchNorm1d(dim), nn.ReLU(),
            nn.Linear(dim, dim),
        )

    def forward(self, x):
        return self.projection_head(self.backbone(x).flatten(start_dim=1))


def main(dataset, args, local_rank):
    dist.init_process_group("nccl")
    torch.cuda.set_device(local_rank)
    model = nn.SyncBatchNorm.convert_sync_batchnorm(BarlowTwins()).cuda()
    model = DDP(model, device_ids=[local_rank])
    criterion = BarlowTwinsLoss(gather_distributed=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-6)

    sampler = torch.utils.data.DistributedSampler(dataset, shuffle=True, drop_last=True)
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=args.batch_size, sampler=sampler, num_workers=8, drop_last=True
    )
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for (x0, x1), _ in loader:
            z = model(torch.cat([x0.cuda(), x1.cuda()]))
            z0, z1 = z.chunk(2)
            loss = criterion(z0, z1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
