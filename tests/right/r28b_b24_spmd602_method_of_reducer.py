# right: `self.finish(item)` waits for the item's handle before the first read in the same loop.
import torch
import torch.distributed as dist


class Item:
    def __init__(self, flat, grad, handle):
        self.flat, self.grad, self.handle = flat, grad, handle


class Reducer:
    def __init__(self, group):
        self.group, self.pending = group, []

    def add(self, grad):
        flat = grad.flatten().float()
        self.pending.append(Item(flat, grad, dist.all_reduce(flat, group=self.group, async_op=True)))

    def finish(self, item):
        item.handle.wait()
        return item.flat

    def flush(self):
        for item in self.pending:
            flat = self.finish(item)
            item.grad.copy_(flat.view_as(item.grad))
            item.grad.add_(item.flat.view_as(item.grad), alpha=0.0)
        for item in self.pending:
            item.handle.wait()
        self.pending = []
