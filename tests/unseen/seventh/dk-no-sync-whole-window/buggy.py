"""Gradient accumulation under DistributedDataParallel."""
import contextlib

import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def accumulate(ddp: DDP, micro_batches, autocast_dtype=torch.bfloat16):
    total = torch.zeros((), device="cuda")
    n = len(micro_batches)
    with contextlib.ExitStack() as stack:
        stack.enter_context(ddp.no_sync())
        for images, targets in micro_batches:
            with torch.autocast("cuda", dtype=autocast_dtype):
                logits = ddp(images.cuda(non_blocking=True))
                loss = F.cross_entropy(logits, targets.cuda(non_blocking=True)) / n
            loss.backward()
            total += loss.detach()
    return total


def train_one_epoch(ddp: DDP, loader, optimizer, scheduler, accum_iter):
    window = []
    for batch in loader:
        window.append(batch)
        if len(window) < accum_iter:
            continue
        optimizer.zero_grad(set_to_none=True)
        accumulate(ddp, window)
        optimizer.step()  # BUG
        scheduler.step()
        window.clear()
