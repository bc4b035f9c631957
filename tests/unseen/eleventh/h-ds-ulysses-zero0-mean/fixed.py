"""Dense gradient reduction without ZeRO, Ulysses sequence parallelism.

Reduced from microsoft/DeepSpeed 6b6d641857 (fix sequence parallel(Ulysses) grad scale for
zero0, #5555).
"""
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from deepspeed import comm as dist
from deepspeed.utils import groups

# spmd: mesh world = dp, sp; alias seq_dp = dp * sp


class DeepSpeedEngine:
    """The loss is a mean over the whole sequence; each sequence rank has its part of the gradient."""

    def __init__(self, module, sequence_parallel_size):
        self.module = module
        self.sequence_parallel_size = sequence_parallel_size

    def allreduce_bucket(self, bucket, dp_group, dp_world_size=None):
        tensor = _flatten_dense_tensors(bucket)  # spmd: {dp: V, sp: P}
        if dp_world_size is None:
            dp_world_size = dist.get_world_size(group=dp_group)
        tensor.mul_(1.0 / dp_world_size)
        dist.all_reduce(tensor, group=dp_group)
        return tensor

    def _reduce_non_expert_gradients(self, grads):
        # spmd: group dp_group = seq_dp
        dp_group = groups._get_sequence_data_parallel_group()
        dp_world_size = dist.get_world_size(dp_group) / float(self.sequence_parallel_size)
        reduced = self.allreduce_bucket(grads, dp_group, dp_world_size=dp_world_size)
        for buf, synced in zip(grads, _unflatten_dense_tensors(reduced, grads)):
            buf.copy_(synced)

    def allreduce_gradients(self):
        self._reduce_non_expert_gradients([p.grad for p in self.module.parameters() if p.grad is not None])
