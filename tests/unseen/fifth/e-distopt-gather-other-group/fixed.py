"""Distributed optimizer: gradients are scattered, updated parameters gathered."""
import torch
import torch.distributed as dist
from megatron.core import parallel_state


class DistributedOptimizer:
    def __init__(self, flat_param, inner):
        self.flat_param, self.inner = flat_param, inner
        self.group = parallel_state.get_data_parallel_group(with_context_parallel=True)
        self.shard = flat_param.chunk(self.group.size())[self.group.rank()]

    def reduce(self, flat_grad):
        self.shard.grad = torch.empty_like(self.shard)
        dist.reduce_scatter_tensor(self.shard.grad, flat_grad, op=dist.ReduceOp.AVG, group=self.group)

    def step(self):
        self.inner.step()
        dist.all_gather_into_tensor(self.flat_param, self.shard, group=self.group)
