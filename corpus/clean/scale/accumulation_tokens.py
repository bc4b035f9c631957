"""Accumulation with a mean over all tokens: those of every micro-batch and every rank are counted before the first backward pass."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


def train_step(model, micro_batches, optimizer, dp_group):
    num_tokens = torch.zeros((), device="cuda")
    for batch in micro_batches:
        num_tokens += (batch["labels"] != -100).sum()
    dist.all_reduce(num_tokens, group=dp_group)
    dp_size = dist.get_world_size(dp_group)
    for batch in micro_batches:
        logits = model(batch["input_ids"])
        loss = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="sum")
        loss = loss * dp_size / num_tokens
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def main(net, batches, dp_group):
    model = DistributedDataParallel(net, process_group=dp_group)
    optimizer = torch.optim.AdamW(model.parameters())
    for micro_batches in batches:
        train_step(model, micro_batches, optimizer, dp_group)
