"""Optimizer step of the sequence-classification recipe."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def run_optim_step(model: DDP, batches, optimizer, dp_group):
    dp_size = dist.get_world_size(dp_group)
    num_labels = torch.tensor(sum(b["labels"].numel() for b in batches), device="cuda")
    dist.all_reduce(num_labels, group=dp_group)
    for i, batch in enumerate(batches):
        model.require_backward_grad_sync = i == len(batches) - 1
        labels = batch.pop("labels").view(-1)
        logits = model(**batch).logits
        loss = torch.nn.functional.cross_entropy(logits, labels, reduction="sum") / num_labels
        (loss * dp_size).backward()
    optimizer.step()
    optimizer.zero_grad()
