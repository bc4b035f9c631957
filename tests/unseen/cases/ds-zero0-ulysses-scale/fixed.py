"""Gradient all-reduce without ZeRO under Ulysses sequence parallelism."""
import torch.distributed as dist
from deepspeed.utils import groups


class DeepSpeedEngine:
    def __init__(self, module):
        self.module = module
        self.seq_dp_group = groups._get_sequence_data_parallel_group()
        self.sequence_parallel_size = groups._get_sequence_parallel_world_size()

    def allreduce_bucket(self, bucket, dp_group, dp_world_size=None):
        if dp_world_size is None:
            dp_world_size = dist.get_world_size(group=dp_group)
        bucket.mul_(1.0 / dp_world_size)
        dist.all_reduce(bucket, group=dp_group)

    def _reduce_non_expert_gradients(self, grads):
        # the loss of a sequence rank is already a mean over the whole sequence:
        # shares of the sequence ranks add up, data ranks are averaged
        for bucket in grads:
            dp_world_size = dist.get_world_size(self.seq_dp_group) / self.sequence_parallel_size
            self.allreduce_bucket(bucket, self.seq_dp_group, dp_world_size)
