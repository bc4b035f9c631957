"""Reduce-scatter of one gradient bucket in Megatron-FSDP."""
import torch


class DataParallelBuffer:
    def __init__(self, numel, group):
        self.group = group
        self.gradient_scaling_factor = 1.0 / group.size()
        self.data = torch.zeros(numel // group.size(), device="cuda")  # shard, accumulates over microbatches
        self.bucket = torch.zeros(numel, device="cuda")  # unsharded gradients of the last microbatch

    def fetch_bucket(self):
        return self.bucket


class GradReducePipeline:
    def __init__(self, buffers):
        self.buffers = buffers

    def bucket_group_gradient_reduce(self):
        for gbuf in self.buffers:
            bucket = gbuf.fetch_bucket()
            bucket.mul_(gbuf.gradient_scaling_factor)
            shard = torch.empty_like(gbuf.data)
            torch.distributed.reduce_scatter_tensor(shard, bucket, group=gbuf.group)
            gbuf.data.add_(shard)
            bucket.zero_()
