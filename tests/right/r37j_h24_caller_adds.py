import torch
import torch.distributed as dist


class Stats:
    def within(self, x, weight):
        mean = x.mean(dim=0) * weight
        dist.all_reduce(mean)
        within = x.var(dim=0, unbiased=False) * weight
        dist.all_reduce(within)
        return mean, within

    def total(self, x, weight):
        mean, within = self.within(x, weight)
        between = (x.mean(dim=0) - mean).square() * weight
        dist.all_reduce(between)
        return mean, within + between
