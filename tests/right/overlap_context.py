"""A gather that runs beside the block of a context manager and is waited for when the block ends."""
from contextlib import contextmanager

import torch
import torch.distributed as dist


class Pending:
    def __init__(self, value, work):
        self.value, self.work = value, work

    def wait(self):
        if self.work is not None:
            self.work.wait()
            self.work = None
        return self.value


@contextmanager
def gathering(x, group):
    out = x.new_empty((dist.get_world_size(group) * x.shape[0], *x.shape[1:]))
    pending = Pending(out, dist.all_gather_into_tensor(out, x.contiguous(), group=group, async_op=True))
    try:
        yield pending
    finally:
        pending.wait()


class Prefetcher:
    """Gathers the parameters of the next layer while this one computes (inference of a sharded model)."""

    def __init__(self, shards, shapes, group):
        self.shards, self.shapes, self.group = shards, shapes, group
        self.flight = {}

    def start(self, i):
        if i < len(self.shards) and i not in self.flight:
            s = self.shards[i]
            out = s.new_empty(s.numel() * dist.get_world_size(self.group))
            self.flight[i] = (out, dist.all_gather_into_tensor(out, s, group=self.group, async_op=True))

    def get(self, i):
        self.start(i)
        out, work = self.flight.pop(i)
        work.wait()
        rows, cols = self.shapes[i]
        return out[: rows * cols].view(rows, cols)


@torch.inference_mode()
def run(x, prefetcher, n):
    prefetcher.start(0)
    for i in range(n):
        w = prefetcher.get(i)
        prefetcher.start(i + 1)
        x = torch.relu(x @ w.t())
    return x


@torch.inference_mode()
def retrieval_recall(query, keys, k, group):
    with gathering(keys, group) as pending:
        query = torch.nn.functional.normalize(query, dim=-1)
    every = torch.nn.functional.normalize(pending.value, dim=-1)
    target = torch.arange(len(query), device=query.device) + dist.get_rank(group) * len(query)
    hit = ((query @ every.t()).topk(k).indices == target[:, None]).any(1).float().sum()
    dist.all_reduce(hit, group=group)
    return hit / len(every)
