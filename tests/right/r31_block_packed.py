# the pair is given as it arrived; its names serve the check of its shape
import torch
import torch.distributed as dist


def attend_pair(query, pair):
    key, value = pair
    scores = query @ key.transpose(-1, -2)
    return torch.exp(scores) @ value, torch.exp(scores).sum(-1, keepdim=True)


def gate(key):
    return torch.sigmoid(key.mean(-1, keepdim=True))


def attend(query, key, value, group):
    size = dist.get_world_size(group)
    kv = torch.stack([key, value])
    pairs = [torch.empty_like(kv) for _ in range(size)]
    dist.all_gather(pairs, kv, group=group)
    top, bottom = 0, 0
    for pair in pairs:
        block_key, block_value = pair.unbind(0)
        if block_key.shape != block_value.shape:
            raise ValueError("keys and values differ in their shapes")
        weighted, weight = attend_pair(query, pair)
        top, bottom = top + weighted * gate(key), bottom + weight
    return top / bottom
