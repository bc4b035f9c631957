"""the gathering teacher is called under no_grad only; the student is what is trained."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


class GatheringTeacher(nn.Module):
    """Features of all ranks' images, in the order of the ranks."""

    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone

    def forward(self, images):
        z = F.normalize(self.backbone(images), dim=-1)
        parts = [torch.empty_like(z) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, z)
        return torch.cat(parts)


def train(student, backbone, loader, lr, tau=0.1):
    model = DistributedDataParallel(student)
    teacher = GatheringTeacher(backbone).eval()
    optimizer = torch.optim.AdamW(student.parameters(), lr=lr)
    for a, b in loader:
        with torch.no_grad():
            bank = teacher(b)
        scores = F.normalize(model(a), dim=-1) @ bank.T / tau
        labels = torch.arange(len(a), device=a.device) + dist.get_rank() * len(a)
        loss = F.cross_entropy(scores, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
