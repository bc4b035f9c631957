"""The other ranks come to the same collective in the other function."""
import torch
import torch.distributed as dist


def contribute(loss):
    """ranks that train"""
    if dist.get_rank() == 0:
        return
    dist.all_reduce(loss)


def collect():
    """rank 0 watches and has nothing to add"""
    if dist.get_rank() != 0:
        return None
    total = torch.zeros((), device="cuda")
    dist.all_reduce(total)
    return total / (dist.get_world_size() - 1)


def report(loss):
    contribute(loss)
    return collect()
