"""Accelerate loop with gradient accumulation and token-normalised cross entropy."""
import contextlib

import torch.nn.functional as F
from accelerate import Accelerator


def shifted_ce_sum(logits, labels):
    logits, labels = logits[:, :-1].float(), labels[:, 1:]
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")


def run_epoch(model, optimizer, scheduler, loader, accum_steps):
    accelerator = Accelerator()
    model, optimizer, scheduler, loader = accelerator.prepare(model, optimizer, scheduler, loader)
    it = iter(loader)
    for _ in range(len(loader) // accum_steps):
        batches = [next(it) for _ in range(accum_steps)]
        num_items = sum((b["labels"][:, 1:] != -100).sum() for b in batches).float()  # BUG
        for i, batch in enumerate(batches):
            last = i == accum_steps - 1
            with contextlib.nullcontext() if last else accelerator.no_sync(model):
                labels = batch.pop("labels")
                loss = shifted_ce_sum(model(**batch).logits, labels) / num_items
                accelerator.backward(loss)  # DDP takes the mean over processes
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
