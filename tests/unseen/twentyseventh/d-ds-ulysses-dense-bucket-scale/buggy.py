"""Gradient all-reduce without ZeRO when Ulysses sequence parallelism is on."""
import deepspeed.comm as dist
from deepspeed.utils import groups
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


def sequence_loss(token_loss, loss_mask, sp_group):
    # token_loss, loss_mask: this rank's part of the sequence
    num_tokens = loss_mask.sum()
    dist.all_reduce(num_tokens, group=sp_group)
    return (token_loss * loss_mask).sum() / num_tokens


class GradientReducer:
    def __init__(self, engine):
        self.engine = engine
        self.sequence_parallel_size = groups._get_sequence_parallel_world_size()

    def allreduce_bucket(self, bucket, dp_group, dp_world_size=None):
        tensor = _flatten_dense_tensors(bucket)
        if dp_world_size is None:
            dp_world_size = dist.get_world_size(group=dp_group)
        tensor.mul_(1.0 / dp_world_size)
        dist.all_reduce(tensor, group=dp_group)
        for buf, synced in zip(bucket, _unflatten_dense_tensors(tensor, bucket)):
            buf.copy_(synced)

    def reduce_non_expert_gradients(self, dense_buckets, sparse_buckets):
        dp_group = groups._get_sequence_data_parallel_group()
        dp_world_size = dist.get_world_size(dp_group) / float(self.sequence_parallel_size)
        for bucket in sparse_buckets:
            self.engine.sparse_allreduce_no_retain(bucket, dp_group, dp_world_size)
        for bucket in dense_buckets:
            self.allreduce_bucket(bucket, dp_group)  # BUG: averages over sequence ranks too
