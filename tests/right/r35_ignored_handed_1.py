"""The rotations are handed to a function that knows how to sum; and others are handed to this one."""
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from .comm import Averaging


def wrap(model, local_rank):
    rotations = [m for m in model.modules() if m.__class__.__name__ == "Rotate"]
    fsdp = FSDP(model, ignored_modules=rotations, device_id=local_rank)
    return fsdp, [r.weight for r in rotations]


def train(fsdp, rotations, loader, loss_fn):
    optimizer = Averaging(torch.optim.SGD(rotations, lr=0.1))
    for x, y in loader:
        loss_fn(fsdp(x), y).backward()
        optimizer.step()
