"""Train one epoch with a bucketing sampler and a validation after it.

Source: lifeiteng/vall-e, pull request #93. The sampler batches by duration, so the ranks get
different numbers of batches. The first rank to run out goes on to the reduction of the
validation while the others are in the backward of their next batch.
"""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def bucket_batches(durations, max_duration, rank, world_size):
    batches, batch, total = [], [], 0.0
    for index in list(range(len(durations)))[rank::world_size]:
        if batch and total + durations[index] > max_duration:
            batches.append(batch)
            batch, total = [], 0.0
        batch.append(index)
        total += durations[index]
    return batches + [batch] if batch else batches


@torch.no_grad()
def compute_validation_loss(model, valid_dl, device):
    totals = torch.zeros(2, device=device)
    for batch in valid_dl:
        loss, frames = model.module(batch)
        totals += torch.stack([loss.detach() * frames, frames.to(loss.dtype)])
    dist.all_reduce(totals)
    return (totals[0] / totals[1]).item()


def train_one_epoch(model: DDP, optimizer, train_dl, valid_dl, device):
    # train_dl: iterates over bucket_batches(...) of this rank
    model.train()
    iterator = iter(train_dl)
    while True:
        try:
            batch = next(iterator)
        except StopIteration:
            break  # BUG
        optimizer.zero_grad()
        loss, _ = model(batch)
        loss.backward()
        optimizer.step()
    model.eval()
    return compute_validation_loss(model, valid_dl, device)
