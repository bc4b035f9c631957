"""Reduce-scatter of gradient buckets into a sharded accumulation buffer."""
import torch
import torch.distributed as dist


class GradBuffer:
    def __init__(self, numel, dp_group, device):
        self.dp_group = dp_group
        self.gradient_scaling_factor = 1.0 / dist.get_world_size(dp_group)
        self.data = torch.zeros(numel // dist.get_world_size(dp_group), device=device)


class GradReducePipeline:
    def __init__(self, buffers):
        self.buffers = buffers

    def collect_bucket(self, params, numel, device):
        bucket = torch.zeros(numel, device=device)
        offset = 0
        for p in params:
            bucket[offset:offset + p.numel()].copy_(p.grad.view(-1))
            offset += p.numel()
            p.grad = None
        return bucket

    def reduce_after_backward(self, groups):
        """Called once for every micro-batch."""
        for gbuf, params in zip(self.buffers, groups):
            bucket = self.collect_bucket(params, gbuf.data.numel() * gbuf.dp_group.size(), gbuf.data.device)
            bucket.mul_(gbuf.gradient_scaling_factor)
            shard = torch.empty_like(gbuf.data)
            dist.reduce_scatter_tensor(shard, bucket, group=gbuf.dp_group)
            gbuf.data.add_(shard)
