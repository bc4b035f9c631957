# a rank that is later in the sequence skips the blocks behind it; buffers of the exchange are swapped by index
import torch
import torch.distributed as dist


def attend(query, key, value, rank, size):
    kv = [torch.stack([key, value]), torch.stack([torch.empty_like(key), torch.empty_like(value)])]
    top = torch.zeros_like(query)
    bottom = torch.zeros_like(query[..., :1])
    for step in range(size):
        now, then = step % 2, (step + 1) % 2
        reqs = []
        if step + 1 < size:
            reqs = dist.batch_isend_irecv(
                [
                    dist.P2POp(dist.isend, kv[now], (rank + 1) % size),
                    dist.P2POp(dist.irecv, kv[then], (rank - 1) % size),
                ]
            )
        if step <= rank:
            block_key, block_value = kv[now][0], kv[now][1]
            weights = torch.exp(query @ block_key.transpose(-1, -2))
            top = top + weights @ block_value
            bottom = bottom + weights.sum(-1, keepdim=True)
        for req in reqs:
            req.wait()
    return top / bottom, key.norm(), value.norm()
