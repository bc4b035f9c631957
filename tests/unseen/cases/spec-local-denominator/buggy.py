"""Masked loss of a draft model trained with DDP."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def loss_function(elementwise_loss, loss_mask):
    # supervised tokens differ between data ranks
    denominator = loss_mask.sum()  # BUG: count of this rank only
    return (elementwise_loss * loss_mask).sum() / denominator.clamp(min=1)


def train(model, loader, optimizer, device):
    model = DDP(model, device_ids=[device])
    for batch in loader:
        elementwise_loss = model(batch["hidden"], batch["labels"])
        loss = loss_function(elementwise_loss, batch["loss_mask"])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
