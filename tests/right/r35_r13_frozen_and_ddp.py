import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torchvision.models import resnet50


def probe(loader, device, classes):
    """A wrapped, frozen backbone, and a probe whose gradients are summed by hand."""
    backbone = DDP(resnet50().to(device))
    head = torch.nn.Linear(1000, classes).to(device)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    for x, y in loader:
        with torch.no_grad():
            h = backbone(x)
        n = (y >= 0).sum()
        dist.all_reduce(n)
        loss = F.cross_entropy(head(h), y, reduction="sum", ignore_index=-1) / n
        loss.backward()
        for p in head.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()
        optimizer.zero_grad()
