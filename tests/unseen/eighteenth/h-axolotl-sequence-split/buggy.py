"""Fine-tuning with sequence parallelism: split the batch, compute the loss on each part.

Source: sequence-parallel fine-tuning as in axolotl and ms-swift (from memory). The labels are moved
by one place inside each part. The last token of a part has lost its target, which is the first
token of the next part, so one prediction per boundary drops out of the loss.
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def split_batch(batch, sp_rank, sp_size):
    ids, labels = batch["input_ids"], batch["labels"]
    positions = torch.arange(ids.size(1), device=ids.device).expand_as(ids)
    return {
        "input_ids": ids.chunk(sp_size, dim=1)[sp_rank],
        "labels": labels.chunk(sp_size, dim=1)[sp_rank],
        "position_ids": positions.chunk(sp_size, dim=1)[sp_rank],
    }


def sequence_parallel_loss(logits, labels, sp_group):
    logits, labels = logits[:, :-1], labels[:, 1:]  # BUG
    total = F.cross_entropy(
        logits.float().flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum"
    )
    count = (labels != -100).sum()
    dist.all_reduce(count, group=sp_group)
    # the wrapper averages over all ranks, those of the sequence group included
    return total / count * dist.get_world_size(sp_group)


def train(model, loader, optimizer, sp_group, device):
    # model: its attention exchanges heads and tokens over sp_group; lengths divide by sp_size
    sp_rank, sp_size = dist.get_rank(sp_group), dist.get_world_size(sp_group)
    model = DDP(model, device_ids=[device.index])
    for batch in loader:
        # all ranks of a sequence group load the same batch
        batch = {k: v.to(device) for k, v in batch.items()}
        part = split_batch(batch, sp_rank, sp_size)
        labels = part.pop("labels")
        optimizer.zero_grad()
        loss = sequence_parallel_loss(model(**part).logits, labels, sp_group)
        loss.backward()
        optimizer.step()
