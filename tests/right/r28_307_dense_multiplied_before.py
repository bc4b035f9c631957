# Right: dense buckets are multiplied by the sequence size before
import torch.distributed as dist


class Reducer:
    def __init__(self, engine, group, sequence_parallel_size):
        self.engine, self.group = engine, group
        self.sequence_parallel_size = sequence_parallel_size

    def allreduce_bucket(self, bucket, group, size=None):
        if size is None:
            size = dist.get_world_size(group=group)
        bucket.mul_(1.0 / size)
        dist.all_reduce(bucket, group=group)

    def reduce(self, dense, sparse):
        group = self.group
        size = dist.get_world_size(group) / self.sequence_parallel_size
        for bucket in sparse:
            self.engine.sparse_allreduce(bucket, group, size)
        for bucket in dense:
            bucket.mul_(self.sequence_parallel_size)
            self.allreduce_bucket(bucket, group)
