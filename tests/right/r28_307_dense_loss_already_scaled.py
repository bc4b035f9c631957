# Right: only metrics are averaged by the second reduction
import torch.distributed as dist


class Reducer:
    def __init__(self, engine, group, sequence_parallel_size):
        self.engine, self.group = engine, group
        self.sequence_parallel_size = sequence_parallel_size

    def mean_(self, t, group, size=None):
        if size is None:
            size = dist.get_world_size(group=group)
        t.mul_(1.0 / size)
        dist.all_reduce(t, group=group)

    def reduce(self, buckets, metrics):
        group = self.group
        size = dist.get_world_size(group) / self.sequence_parallel_size
        for bucket in buckets:
            self.mean_(bucket, group, size)
        for m in metrics.values():
            self.mean_(m, group)
