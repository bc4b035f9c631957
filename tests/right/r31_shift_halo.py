# one run per rank: the label of the last token comes from the next rank
import torch
import torch.distributed as dist


def own(x, rank, size, dim=1):
    return x.chunk(size, dim=dim)[rank]


def first_of_next(ids, rank, size, group):
    firsts = [torch.empty_like(ids[:, :1]) for _ in range(size)]
    dist.all_gather(firsts, ids[:, :1].contiguous(), group=group)
    return firsts[(rank + 1) % size]


def prepare(ids, group):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    ids = own(ids, rank, size)
    following = first_of_next(ids, rank, size, group)
    labels = torch.cat([ids.roll(-1, 1)[:, :-1], following], dim=1)
    if rank == size - 1:
        labels[:, -1] = -100
    return ids, labels
