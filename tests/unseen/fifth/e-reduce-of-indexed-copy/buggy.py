"""Sum the gradients of the rows that tied embeddings share."""
import torch
import torch.distributed as dist


def sync_shared_rows(weight, shared_ids, group):
    dist.all_reduce(weight.grad[shared_ids], group=group)  # BUG: indexing with ids copies
    return weight.grad.norm()
