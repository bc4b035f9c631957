"""Hybrid sharding by hand: shards inside a node, replicas across nodes."""
import torch
import torch.distributed as dist


class HybridShardedBuffer:
    def __init__(self, flat, shard_group, replicate_group):
        self.flat = flat
        self.shard_group, self.replicate_group = shard_group, replicate_group
        self.grad_shard = torch.zeros(flat.numel() // shard_group.size(), device=flat.device)

    def reduce(self, flat_grad):
        dist.reduce_scatter_tensor(self.grad_shard, flat_grad, op=dist.ReduceOp.AVG, group=self.shard_group)  # BUG: never summed over replicate_group

    def gather(self):
        out = torch.empty_like(self.flat)
        dist.all_gather_into_tensor(out, self.flat_shard(), group=self.shard_group)
        return out

    def flat_shard(self):
        rank = self.shard_group.rank()
        n = self.grad_shard.numel()
        return self.flat[rank * n:(rank + 1) * n]
