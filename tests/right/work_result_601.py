import torch
import torch.distributed as dist


class Overlap:
    def __init__(self, n, group):
        self.n, self.group, self.pending = n, group, []

    def start(self, x):
        work = dist.all_reduce(x / self.n, group=self.group, async_op=True)
        self.pending.append((x, work))

    def finish(self):
        for x, work in self.pending:
            work.wait()
            x.copy_(work.result()[0])
        self.pending.clear()
