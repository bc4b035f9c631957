"""The clock is asked in a job of one rank alone."""
import time
import torch
import torch.distributed as dist


def train(model, loader, limit):
    world_size = dist.get_world_size()
    t0 = time.time()
    for x in loader:
        if world_size == 1 and time.time() - t0 > limit:
            print("out of time")
            break
        loss = model(x).mean().detach()
        dist.all_reduce(loss)
        print(loss.item() / world_size)
