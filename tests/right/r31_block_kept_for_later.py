# the first loop puts the blocks together, own ones are given to what needs nothing else, and the blocks are read behind the loop
import torch
import torch.distributed as dist


def summary(query, key):
    return (query * key.mean(1, keepdim=True)).sum(-1)


def attend(query, key, value, group):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    kv = torch.stack([key, value])
    blocks = [torch.empty_like(kv) for _ in range(size)]
    dist.all_gather(blocks, kv, group=group)
    keys, values, hints = [], [], []
    for i in range(size):
        next_key, next_value = blocks[(rank - i) % size]
        keys.append(next_key)
        values.append(next_value)
        hints.append(summary(query, key))
    scores = query @ torch.cat(keys, dim=1).transpose(-1, -2)
    return torch.softmax(scores, dim=-1) @ torch.cat(values, dim=1), torch.stack(hints)


def last_block(query, key, value, group):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    kv = torch.stack([key, value])
    blocks = [torch.empty_like(kv) for _ in range(size)]
    dist.all_gather(blocks, kv, group=group)
    gates = []
    for i in range(size):
        next_key, next_value = blocks[(rank + i) % size]
        gates.append(summary(query, key) * summary(query, value))
    # of the left neighbour alone
    return summary(query, next_key), summary(query, next_value), torch.stack(gates)
