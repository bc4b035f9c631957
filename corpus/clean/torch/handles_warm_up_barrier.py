"""The start of a job: warm-up of communicators, a barrier by an all-reduce, a check of the network, ranks that wait for a download."""

import os
import time

import torch
import torch.distributed as dist


def warm_up(groups):
    for group in groups:
        dist.all_reduce(torch.zeros(1, device="cuda"), group=group)
    torch.cuda.synchronize()


def soft_barrier(group=None):
    token = torch.ones(1, device="cuda")
    dist.all_reduce(token, group=group)
    return token.item() == dist.get_world_size(group)


def bandwidth(size, repeats, group=None):
    buffers = [torch.empty(size, dtype=torch.bfloat16, device="cuda") for _ in range(repeats)]
    torch.cuda.synchronize()
    start = time.perf_counter()
    works = [dist.all_reduce(buffer, group=group, async_op=True) for buffer in buffers]
    for work in works:
        work.wait()
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - start) / repeats
    world = dist.get_world_size(group)
    return 2 * (world - 1) / world * buffers[0].numel() * buffers[0].element_size() / seconds


def download(fetch, path):
    """One rank of each host downloads; the others find the file."""
    if int(os.environ["LOCAL_RANK"]) == 0 and not os.path.exists(path):
        fetch(path)
    dist.barrier()
    return torch.load(path, map_location="cpu")


def agree(flag, group=None):
    vote = torch.tensor(int(flag), device="cuda")
    dist.all_reduce(vote, op=dist.ReduceOp.MIN, group=group)
    return bool(vote)


class Prefetcher:
    """A number that is reduced while the next step runs, and read one step later."""

    def __init__(self, group=None):
        self.group, self.work, self.value = group, None, None

    def put(self, loss):
        self.value = loss.detach().clone() / dist.get_world_size(self.group)
        self.work = dist.all_reduce(self.value, group=self.group, async_op=True)

    def get(self):
        if self.work is None:
            return None
        self.work.wait()
        self.work = None
        return self.value.item()
