import torch
import torch.distributed as dist


def smallest(n, group=None):
    t = torch.tensor([n], device="cuda")
    dist.all_reduce(t, op=dist.ReduceOp.MIN, group=group)
    return int(t)


def even_rows(rows, group):
    """All ranks of the job use the same number of rows, and each its own of what its group shares."""
    n = smallest(len(rows))
    n -= n % dist.get_world_size(group)
    parts = rows[:n].chunk(dist.get_world_size(group))
    return parts[dist.get_rank(group)]
