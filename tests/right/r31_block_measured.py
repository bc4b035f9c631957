# what comes round is of no interest: the loop sees how long the exchange takes beside the work
import time

import torch
import torch.distributed as dist


def exchange(t, rank, size):
    out = torch.empty_like(t)
    work = dist.irecv(out, (rank - 1) % size)
    dist.send(t, (rank + 1) % size)
    work.wait()
    return out


def overlap(query, key, value, rank, size, rounds):
    begun = time.perf_counter()
    for _ in range(rounds):
        next_key, next_value = exchange(key, rank, size), exchange(value, rank, size)
        torch.nn.functional.scaled_dot_product_attention(query, key, value)
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) / rounds
