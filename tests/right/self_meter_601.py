import torch
import torch.distributed as dist


class Eval:
    def __init__(self, meter):
        self.meter = meter

    def finish(self, group):
        dist.all_reduce(self.meter.sum(), group=group)
        return self.meter.average()
