"""Training step of a classifier under DistributedDataParallel."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def train_epoch(model, loader, optimizer, local_rank, log):
    ddp = DDP(model, device_ids=[local_rank])
    world_size = dist.get_world_size()
    for images, target in loader:
        loss = F.cross_entropy(ddp(images), target)
        dist.all_reduce(loss)
        loss = loss / world_size  # BUG: the value is the global mean, the gradient is divided twice
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log(loss.item())
