import torch
import torch.distributed as dist


def reduce_all(weights, biases, group):
    """In place on every tensor of both lists."""
    dist.all_reduce_coalesced(weights + biases, group=group)
    for w, b in zip(weights, biases):
        w.div_(2)
        b.div_(2)
