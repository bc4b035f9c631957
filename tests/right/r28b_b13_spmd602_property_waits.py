# right: `item.flat` is a property that waits for the handle before it gives the tensor.
import torch
import torch.distributed as dist


class Item:
    def __init__(self, flat, grads, handle):
        self._flat, self.grads, self.handle = flat, grads, handle

    @property
    def flat(self):
        self.handle.wait()
        return self._flat


class Reducer:
    def __init__(self, group):
        self.group, self.pending = group, []

    def add(self, grads):
        flat = torch.cat([g.flatten() for g in grads])
        self.pending.append(Item(flat, grads, dist.all_reduce(flat, op=dist.ReduceOp.AVG, group=self.group, async_op=True)))

    def flush(self):
        for item in self.pending:
            offset = 0
            for grad in item.grads:
                grad.copy_(item.flat[offset : offset + grad.numel()].view_as(grad))
                offset += grad.numel()
        for item in self.pending:
            item.handle.wait()
        self.pending = []
