"""A divisor is looked up with the group."""

import torch
import torch.distributed as dist

from engine import groups


class Engine(torch.nn.Module):
    def __init__(self, module, sequence_parallel_size, mpu=None):
        super().__init__()
        self.module, self.mpu = module, mpu
        self.sequence_parallel_size = sequence_parallel_size

    def reduce_bucket(self, bucket, dp_group, dp_world_size):
        for grad in bucket:
            grad.div_(dp_world_size)
            dist.all_reduce(grad, group=dp_group)

    def reduce(self):
        grads = [p.grad for p in self.module.parameters()]
        dp_group = groups.get_sequence_data_parallel_group()
        dp_world_size = groups.divisor_of(dp_group)
        self.reduce_bucket(grads, dp_group=dp_group, dp_world_size=dp_world_size)
