"""Hybrid sharding: reduce-scatter inside a node, all-reduce between nodes."""
# Source: NVIDIA/Megatron-LM pull request 7186 (confirmed from the thread)
from contextlib import contextmanager

import torch
import torch.distributed as dist


class ShardContext:
    def __init__(self):
        self.is_last_microbatch = True

    @contextmanager
    def microbatch(self, is_last):
        previous, self.is_last_microbatch = self.is_last_microbatch, is_last
        try:
            yield
        finally:
            self.is_last_microbatch = previous


class GradShard:
    """Accumulates one parameter group's gradient shard over microbatches."""

    def __init__(self, numel, inner_group, outer_group, context):
        self.inner_group, self.outer_group, self.context = inner_group, outer_group, context
        self.accum = torch.zeros(numel // inner_group.size(), dtype=torch.float32, device="cuda")
        self.main_grad = None

    def reduce_partial_gradients(self, full_grad):
        if self.main_grad is not None:
            self.accum.zero_()
            self.main_grad = None
        shard = torch.empty_like(self.accum)
        dist.reduce_scatter_tensor(shard, full_grad.float(), op=dist.ReduceOp.AVG, group=self.inner_group)
        self.accum.add_(shard)
        if self.context.is_last_microbatch:
            dist.all_reduce(self.accum, op=dist.ReduceOp.AVG, group=self.outer_group)
            self.main_grad = self.accum


class FullyShardedDataParallel(torch.nn.Module):
    def __init__(self, module, shards, context):
        super().__init__()
        self.module, self.shards, self.context = module, shards, context

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    @contextmanager
    def no_sync(self):
        with self.context.microbatch(is_last=False):
            yield


def forward_backward_no_pipelining(model, microbatches, loss_func):
    with model.no_sync():
        for batch in microbatches[:-1]:
            (loss_func(model(batch), batch) / len(microbatches)).backward()
    batch = microbatches[-1]
    (loss_func(model(batch), batch) / len(microbatches)).backward()
