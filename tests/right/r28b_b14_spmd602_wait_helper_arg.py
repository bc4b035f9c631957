# right: the first loop calls module function `settle(item)`, which waits for the item's handle, before it reads `item.flat`; the second wait is a harmless repeat.
import torch
import torch.distributed as dist


class Item:
    def __init__(self, flat, grads, handle):
        self.flat, self.grads, self.handle = flat, grads, handle


def settle(item):
    if item.handle is not None:
        item.handle.wait()


class Reducer:
    def __init__(self, group):
        self.group, self.pending = group, []

    def add(self, grads):
        flat = torch.cat([g.flatten() for g in grads])
        self.pending.append(Item(flat, grads, dist.all_reduce(flat, op=dist.ReduceOp.AVG, group=self.group, async_op=True)))

    def flush(self):
        for item in self.pending:
            settle(item)
            offset = 0
            for grad in item.grads:
                grad.copy_(item.flat[offset : offset + grad.numel()].view_as(grad))
                offset += grad.numel()
        for item in self.pending:
            item.handle.wait()
        self.pending = []
