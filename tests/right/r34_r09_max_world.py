import torch
import torch.distributed as dist


def largest(x, group=None):
    dist.all_reduce(x, op=dist.ReduceOp.MAX, group=group)
    return x


def pad_and_pick(batch, length, group):
    """All ranks of the job pad to one length; ranks of the group take their rows."""
    length = largest(length)
    padded = torch.nn.functional.pad(batch, (0, int(length) - batch.size(1)))
    rows = padded.chunk(dist.get_world_size(group))
    return rows[dist.get_rank(group)]
