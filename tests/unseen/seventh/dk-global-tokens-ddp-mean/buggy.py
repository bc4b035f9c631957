"""Token-weighted supervised fine-tuning under DDP."""
import contextlib

import torch
import torch.distributed as dist
import torch.nn.functional as F


def count_tokens(micro_batches, device):
    n = torch.zeros((), dtype=torch.long, device=device)
    for mb in micro_batches:
        n += (mb["labels"][:, 1:] != -100).sum().to(device)
    dist.all_reduce(n)  # global batch
    return n


def train_step(ddp, micro_batches, optimizer, max_norm=1.0):
    device = next(ddp.parameters()).device
    num_tokens = count_tokens(micro_batches, device)
    optimizer.zero_grad(set_to_none=True)
    for i, mb in enumerate(micro_batches):
        last = i + 1 == len(micro_batches)
        with contextlib.nullcontext() if last else ddp.no_sync():
            logits = ddp(mb["input_ids"].to(device))
            loss_sum = F.cross_entropy(
                logits[:, :-1].flatten(0, 1).float(),
                mb["labels"][:, 1:].flatten().to(device),
                ignore_index=-100,
                reduction="sum",
            )
            loss = loss_sum / num_tokens  # BUG
            loss.backward()
    torch.nn.utils.clip_grad_norm_(ddp.parameters(), max_norm)
    optimizer.step()
