"""Accumulation under DDP with a shorter last group of the epoch; the context is chosen in a helper."""
import contextlib

import torch
from torch.nn.parallel import DistributedDataParallel as DDP


def steps_now(i, total, every):
    return (i + 1) % every == 0 or i + 1 == total


def size_of_group(i, total, every):
    start = i // every * every
    return min(every, total - start)


def sync_context(model, sync):
    return contextlib.nullcontext() if sync else model.no_sync()


def train_epoch(model: DDP, loader, optimizer, scheduler, every):
    total = len(loader)
    for i, (x, y) in enumerate(loader):
        sync = steps_now(i, total, every)
        with sync_context(model, sync):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            (loss / size_of_group(i, total, every)).backward()
        if not sync:
            continue
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)


def main(net, loader):
    model = DDP(net.cuda(), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)
    for _ in range(3):
        train_epoch(model, loader, optimizer, scheduler, 8)
