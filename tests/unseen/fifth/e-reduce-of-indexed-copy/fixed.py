"""Sum the gradients of the rows that tied embeddings share."""
import torch
import torch.distributed as dist


def sync_shared_rows(weight, shared_ids, group):
    rows = weight.grad[shared_ids]
    dist.all_reduce(rows, group=group)
    weight.grad[shared_ids] = rows
    return weight.grad.norm()
