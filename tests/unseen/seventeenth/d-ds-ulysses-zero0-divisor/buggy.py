# Source: microsoft/DeepSpeed commit 6b6d64185 (PR #5555), deepspeed/runtime/engine.py
# With Ulysses the gradients are summed over the sequence-data-parallel group, but only the
# data-parallel ranks hold different samples. Dividing by the size of the whole group makes
# the gradients sequence_parallel_size times too small (grad norm 3.956 instead of 15.825).
# Repair: divide by world size of the group / sequence_parallel_size.
import torch
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from deepspeed import comm as dist
from deepspeed.utils import groups


class DeepSpeedEngine(torch.nn.Module):
    def __init__(self, module, mpu=None, pipeline_parallelism=False, sequence_parallel_size=1):
        super().__init__()
        self.module, self.mpu = module, mpu
        self.pipeline_parallelism = pipeline_parallelism
        self.sequence_parallel_size = sequence_parallel_size

    def allreduce_bucket(self, bucket, dp_group, dp_world_size=None):
        tensor = _flatten_dense_tensors(bucket)
        if dp_world_size is None:
            dp_world_size = dist.get_world_size(group=dp_group)
        tensor.mul_(1. / dp_world_size)
        dist.all_reduce(tensor, group=dp_group)
        return tensor

    def allreduce_and_copy(self, small_bucket, dp_group, dp_world_size=None):
        allreduced = self.allreduce_bucket(small_bucket, dp_group, dp_world_size)
        for buf, synced in zip(small_bucket, _unflatten_dense_tensors(allreduced, small_bucket)):
            buf.copy_(synced)

    def _reduce_non_expert_gradients(self, grads):
        if self.pipeline_parallelism:
            dp_group = self.mpu.get_data_parallel_group()
        else:
            # ranks of one sequence-parallel group: same samples, other tokens of one loss
            dp_group = groups._get_sequence_data_parallel_group()
        self.allreduce_and_copy(grads, dp_group=dp_group)  # BUG

    def allreduce_gradients(self):
        self._reduce_non_expert_gradients([p.grad.data for p in self.module.parameters() if p.grad is not None])
