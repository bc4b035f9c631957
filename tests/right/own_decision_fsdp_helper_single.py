"""The round is left out where there is one rank, or where the caller ends the job, or the loss is the same on all ranks."""
import torch
from torch.distributed.fsdp import fully_shard


def setup(model, shard):
    if shard:
        fully_shard(model)
    return model


def train(model, loader, optimizer, shard):
    model = setup(model, shard)
    for x in loader:
        loss = model(x).mean()
        if not shard and not torch.isfinite(loss):
            continue
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
