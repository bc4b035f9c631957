# right: the same handles are also kept in `self.handles`, all of which are waited for before the loop that reads.
import torch
import torch.distributed as dist


class Item:
    def __init__(self, flat, grad, handle):
        self.flat, self.grad, self.handle = flat, grad, handle


class Reducer:
    def __init__(self, group):
        self.group, self.pending, self.handles = group, [], []

    def add(self, grad):
        flat = grad.flatten().float()
        handle = dist.all_reduce(flat, group=self.group, async_op=True)
        self.handles.append(handle)
        self.pending.append(Item(flat, grad, handle))

    def flush(self):
        for handle in self.handles:
            handle.wait()
        for item in self.pending:
            item.grad.copy_(item.flat.view_as(item.grad))
        for item in self.pending:
            item.handle.wait()
        self.pending, self.handles = [], []
