"""SimCLR pretraining: normalized temperature cross entropy over all ranks."""
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


class GatherLayer(torch.autograd.Function):
    """Embeddings of all ranks, in rank order."""

    @staticmethod
    def forward(ctx, embeddings):
        gathered = [torch.empty_like(embeddings) for _ in range(dist.get_world_size())]
        dist.all_gather(gathered, embeddings.contiguous())
        return tuple(gathered)

    @staticmethod
    def backward(ctx, *grads):
        stacked = torch.stack(grads)
        dist.all_reduce(stacked)
        return stacked[dist.get_rank()]


class NTXentLoss(nn.Module):
    def __init__(self, temperature):
        super().__init__()
        self.temperature = temperature

    def forward(self, first, second):
        first, second = F.normalize(first, dim=1), F.normalize(second, dim=1)
        all_first = torch.cat(GatherLayer.apply(first))
        all_second = torch.cat(GatherLayer.apply(second))
        n = first.size(0)
        own = dist.get_rank() * n + torch.arange(n, device=first.device)
        diagonal = F.one_hot(own, all_first.size(0)).bool()
        same_a = (first @ all_first.T / self.temperature).masked_fill(diagonal, float("-inf"))
        same_b = (second @ all_second.T / self.temperature).masked_fill(diagonal, float("-inf"))
        cross_a = first @ all_second.T / self.temperature
        cross_b = second @ all_first.T / self.temperature
        loss_a = F.cross_entropy(torch.cat([cross_a, same_a], dim=1), own)
        loss_b = F.cross_entropy(torch.cat([cross_b, same_b], dim=1), own)
        return (loss_a + loss_b) / 2


class ProjectionModel(nn.Module):
    def __init__(self, backbone, width, dim):
        super().__init__()
        self.backbone = backbone
        self.projector = nn.Sequential(
            nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, dim)
        )

    def forward(self, images):
        return self.projector(self.backbone(images))


def run(dataset, backbone, width, epochs=100, batch_size=256, lr=1e-3):
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    model = nn.SyncBatchNorm.convert_sync_batchnorm(ProjectionModel(backbone, width, 128)).cuda()
    model = DDP(model, device_ids=[local_rank])
    criterion = NTXentLoss(temperature=0.1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=1e-4)
    sampler = DistributedSampler(dataset, shuffle=True, drop_last=True)
    loader = DataLoader(dataset, batch_size, sampler=sampler, num_workers=8, drop_last=True)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for view_a, view_b in loader:
            views = torch.cat([view_a, view_b]).cuda(non_blocking=True)
            z_a, z_b = model(views).chunk(2)
            loss = criterion(z_a, z_b)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
    dist.destroy_process_group()
