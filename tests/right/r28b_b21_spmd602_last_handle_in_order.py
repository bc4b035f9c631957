# right: NCCL runs the reductions of one group in order on one stream, so the wait for the last handle covers all (arguable: NCCL only).
import torch
import torch.distributed as dist


class Item:
    def __init__(self, flat, grad, handle):
        self.flat, self.grad, self.handle = flat, grad, handle


class Reducer:
    """All reductions run in order on the one NCCL stream of the group: the last one is the end of all."""

    def __init__(self, group):
        self.group, self.pending = group, []

    def add(self, grad):
        flat = grad.flatten().float()
        self.pending.append(Item(flat, grad, dist.all_reduce(flat, group=self.group, async_op=True)))

    def flush(self):
        self.pending[-1].handle.wait()
        for item in self.pending:
            item.grad.copy_(item.flat.view_as(item.grad))
        for item in self.pending:
            item.handle.wait()
        self.pending = []
