"""The clock is asked in a job of one rank alone."""
import time
import torch
import torch.distributed as dist


def train(model, loader, limit):
    t0 = time.time()
    for x in loader:
        if not dist.is_initialized() and time.time() - t0 > limit:
            break
        loss = model(x).mean().detach()
        if dist.is_initialized():
            dist.all_reduce(loss)
