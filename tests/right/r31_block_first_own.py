# the first round reads this rank's own block, which no gather is needed for; the others read those of the others
import torch
import torch.distributed as dist


def gather(t, group):
    parts = [torch.empty_like(t) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, t.contiguous(), group=group)
    return parts


def block_scores(query, key):
    return torch.logsumexp(query @ key.transpose(-1, -2), dim=-1)


def lse_of_all(query, key, group):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    keys = gather(key, group)
    lse = block_scores(query, key)
    for i in range(1, size):
        next_key = keys[(rank + i) % size]
        lse = torch.logaddexp(lse, block_scores(query, next_key))
    return lse


def lse_by_branch(query, key, group):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    keys = gather(key, group)
    lse = None
    for i in range(size):
        next_key = keys[(rank + i) % size]
        if i == 0:
            lse = block_scores(query, key)
        else:
            lse = torch.logaddexp(lse, block_scores(query, next_key))
    return lse
