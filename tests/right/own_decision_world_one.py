"""The round is left out where there is one rank, or where the caller ends the job, or the loss is the same on all ranks."""
import os
import torch
from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, loader, optimizer, device):
    parallel = int(os.environ.get("WORLD_SIZE", "1")) > 1
    model = DDP(net, device_ids=[device]) if parallel else net
    for x in loader:
        loss = model(x).mean()
        if not parallel and not torch.isfinite(loss):
            continue
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
