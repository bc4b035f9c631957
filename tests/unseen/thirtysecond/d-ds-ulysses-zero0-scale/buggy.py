"""Gradient reduction of the engine without ZeRO, Ulysses sequence parallelism.
microsoft/DeepSpeed #5555, "fix sequence parallel(Ulysses) grad scale for zero0".
"""
import torch
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
import deepspeed.comm as dist
from deepspeed.utils import groups


def sequence_parallel_loss(token_loss, batch_size, full_seq_len):
    # token_loss: this rank's part of the sequence
    return token_loss.sum() / (batch_size * full_seq_len)


class DeepSpeedEngine(torch.nn.Module):
    def __init__(self, module, mpu, sequence_parallel_size, pipeline_parallelism=False):
        super().__init__()
        self.module, self.mpu = module, mpu
        self.sequence_parallel_size = sequence_parallel_size
        self.pipeline_parallelism = pipeline_parallelism

    def allreduce_bucket(self, bucket, dp_group, dp_world_size):
        tensor = _flatten_dense_tensors(bucket)
        tensor.div_(dp_world_size)
        dist.all_reduce(tensor, group=dp_group)
        return tensor

    def allreduce_no_retain(self, bucket, dp_group, dp_world_size):
        allreduced = self.allreduce_bucket(bucket, dp_group, dp_world_size)
        for buf, synced in zip(bucket, _unflatten_dense_tensors(allreduced, bucket)):
            buf.copy_(synced)

    def _reduce_non_expert_gradients(self, grads):
        if self.pipeline_parallelism:
            dp_group = self.mpu.get_data_parallel_group()
            dp_world_size = dist.get_world_size(dp_group)
        else:
            dp_group = groups._get_sequence_data_parallel_group()
            dp_world_size = dist.get_world_size(dp_group)  # BUG
        self.allreduce_no_retain(grads, dp_group=dp_group, dp_world_size=dp_world_size)

    def allreduce_gradients(self):
        grads = [p.grad.data for p in self.module.parameters() if p.grad is not None]
        self._reduce_non_expert_gradients(grads)
