"""Handles of asynchronous collectives in a dict, in a closure and in a result; each is waited for before its tensor is read."""

import torch
import torch.distributed as dist


class Overlap:
    def __init__(self, group):
        self.group, self.works = group, {}

    def launch(self, key, tensor):
        self.works[key] = (dist.all_reduce(tensor, group=self.group, async_op=True), tensor)
        return self

    def collect(self, key):
        work, tensor = self.works.pop(key)
        work.wait()
        return tensor


def start(x, group):
    out = torch.empty_like(x)
    work = dist.all_to_all_single(out, x, group=group, async_op=True)

    def done():
        work.wait()
        return out

    return done


def gather_async(x, group):
    out = x.new_empty(x.shape[0] * group.size(), *x.shape[1:])
    return out, dist.all_gather_into_tensor(out, x, group=group, async_op=True)


def use(x, y, group):
    full, work = gather_async(x, group)
    z = y * 2
    work.wait()
    return full.sum() + z.sum() + start(y, group)().sum()
