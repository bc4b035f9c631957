# the probabilities were kept by the forward: of each block this pass needs the values alone
import torch
import torch.distributed as dist


def grad_of_scores(probs, grad_out, value, delta):
    return probs * (grad_out @ value.transpose(-1, -2) - delta)


def grad_query(kept, query, key, value, grad_out, out, group):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    kv = torch.stack([key, value])
    blocks = [torch.empty_like(kv) for _ in range(size)]
    dist.all_gather(blocks, kv, group=group)
    delta = (grad_out * out).sum(-1, keepdim=True)
    total = torch.zeros_like(query, dtype=torch.float32)
    scale = key.size(-1) ** -0.5
    for i in range(size):
        block_key, block_value = blocks[(rank + i) % size]
        grad_scores = grad_of_scores(kept[i], grad_out, block_value, delta) * scale
        total += grad_scores @ block_key
    return total


def output(kept, query, key, value, group):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    kv = torch.stack([key, value])
    blocks = [torch.empty_like(kv) for _ in range(size)]
    dist.all_gather(blocks, kv, group=group)
    total = torch.zeros_like(query)
    for i in range(size):
        block_key, block_value = blocks[(rank + i) % size]
        total = total + kept[i] @ block_value
    norm = torch.linalg.vector_norm(key, dim=-1)
    return total, norm
