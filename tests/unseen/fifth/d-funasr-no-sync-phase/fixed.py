"""Gradient accumulation under DistributedDataParallel."""
from contextlib import nullcontext

import torch
from torch.nn.parallel import DistributedDataParallel as DDP


def train_epoch(model, loader, optimizer, scheduler, accum_grad, local_rank):
    model = DDP(model, device_ids=[local_rank])
    for batch_idx, batch in enumerate(loader):
        ctx = model.no_sync() if (batch_idx + 1) % accum_grad != 0 else nullcontext()
        with ctx:
            loss = model(**batch)["loss"] / accum_grad
            loss.backward()
        if (batch_idx + 1) % accum_grad == 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
