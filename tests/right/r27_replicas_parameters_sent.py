"""Shards inside a node, replicas across nodes."""
import torch
import torch.distributed as dist


class Buffer:
    def __init__(self, flat, shard_group, replica_group):
        self.flat = flat
        self.shard_group = shard_group
        self.replica_group = replica_group
        self.part = torch.zeros(flat.numel() // shard_group.size(), device=flat.device)

    def mean_of_replicas(self, part):
        dist.all_reduce(part, op=dist.ReduceOp.AVG, group=self.replica_group)

    def finish(self, flat_grad):
        dist.reduce_scatter_tensor(self.part, flat_grad, op=dist.ReduceOp.AVG, group=self.shard_group)
        self.mean_of_replicas(self.part)

    def spread(self):
        dist.broadcast(self.flat, group_src=0, group=self.replica_group)

    def part_of(self):
        n = self.part.numel()
        rank = self.shard_group.rank()
        return self.flat[rank * n : (rank + 1) * n]
