# DeepSpeed 6b6d64185 (#5555)
"""Gradient reduction of the engine without ZeRO, with Ulysses sequence parallelism."""
import torch
from deepspeed import comm as dist
from deepspeed.utils import groups
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


def sequence_parallel_loss(token_loss):
    """token_loss: this rank's tokens; the shares of a sequence group add up to its mean."""
    sp_size = groups._get_sequence_parallel_world_size()
    return token_loss.sum() / (token_loss.numel() * sp_size)


class DeepSpeedEngine:
    def __init__(self, module):
        self.module = module
        self.sequence_parallel_size = groups._get_sequence_parallel_world_size()

    def allreduce_bucket(self, bucket, dp_group, dp_world_size):
        tensor = _flatten_dense_tensors(bucket)
        tensor.mul_(1.0 / dp_world_size)
        dist.all_reduce(tensor, group=dp_group)
        return tensor

    def allreduce_no_retain(self, bucket, dp_group, dp_world_size):
        reduced = self.allreduce_bucket(bucket, dp_group, dp_world_size)
        for buf, synced in zip(bucket, _unflatten_dense_tensors(reduced, bucket)):
            buf.copy_(synced)

    def allreduce_gradients(self):
        grads = [p.grad.data for p in self.module.parameters() if p.grad is not None]
        dp_group = groups._get_sequence_data_parallel_group()
        dp_world_size = dist.get_world_size(dp_group)  # BUG: sequence ranks are summed, only data ranks averaged
        self.allreduce_no_retain(grads, dp_group, dp_world_size)
