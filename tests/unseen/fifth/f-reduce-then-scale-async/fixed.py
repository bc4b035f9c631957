"""Bucketed gradient reduction in the background."""
import torch
import torch.distributed as dist


class Bucket:
    def __init__(self, buffer, group):
        self.buffer, self.group, self.handle = buffer, group, None

    def start(self):
        self.buffer.div_(self.group.size())
        self.handle = dist.all_reduce(self.buffer, group=self.group, async_op=True)

    def finish(self):
        self.handle.wait()
