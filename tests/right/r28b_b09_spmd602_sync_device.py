# right: torch.cuda.synchronize() before the loop waits for all streams, NCCL's among them (arguable: NCCL only).
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

    def flush(self):
        torch.cuda.synchronize()
        for item in self.pending:
            item.grad.copy_(item.flat.view_as(item.grad))
        for item in self.pending:
            item.handle.wait()
        self.pending = []
