import torch
import torch.distributed as dist


def same_as_next(ids, group):
    # does not wrap into the loss: only counts repeats within a part
    n, rank = dist.get_world_size(group), dist.get_rank(group)
    ids = ids.chunk(n, dim=1)[rank]
    nxt = torch.roll(ids, -1, dims=1)
    return (ids == nxt)[:, :-1].sum()
