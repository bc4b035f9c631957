"""Gradient all-reduce without ZeRO, with Ulysses sequence parallelism.

After deepspeedai/DeepSpeed PR #5555 (deepspeed/runtime/engine.py).
"""
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


class DeepSpeedEngine:
    def __init__(self, module, optimizer, seq_dp_group, sequence_parallel_group, bucket_size=500_000_000):
        self.module, self.optimizer = module, optimizer
        self.seq_data_parallel_group = seq_dp_group  # dp x sp ranks
        self.sequence_parallel_group = sequence_parallel_group
        self.sequence_parallel_size = dist.get_world_size(sequence_parallel_group)
        self.reduce_bucket_size = bucket_size

    def loss(self, token_loss, valid):
        """token_loss, valid: this rank's part of the sequence; the mean is over the whole sequence."""
        count = valid.sum().float()
        dist.all_reduce(count, group=self.sequence_parallel_group)
        return (token_loss * valid).sum() / count.clamp(min=1)

    def allreduce_bucket(self, bucket, dp_group, dp_world_size=None):
        tensor = _flatten_dense_tensors(bucket)
        if dp_world_size is None:
            dp_world_size = dist.get_world_size(group=dp_group)
        tensor.div_(dp_world_size)
        dist.all_reduce(tensor, group=dp_group)
        return tensor

    def allreduce_and_copy(self, small_bucket, dp_group, dp_world_size=None):
        allreduced = self.allreduce_bucket(small_bucket, dp_group, dp_world_size)
        for buf, synced in zip(small_bucket, _unflatten_dense_tensors(allreduced, small_bucket)):
            buf.copy_(synced)

    def allreduce_no_retain(self, bucket, dp_group, dp_world_size=None):
        small_bucket, numel = [], 0
        for tensor in bucket:
            small_bucket.append(tensor)
            numel += tensor.numel()
            if numel > self.reduce_bucket_size:
                self.allreduce_and_copy(small_bucket, dp_group, dp_world_size)
                small_bucket, numel = [], 0
        if small_bucket:
            self.allreduce_and_copy(small_bucket, dp_group, dp_world_size)

    def _reduce_gradients(self):
        by_dtype = {}
        for p in self.module.parameters():
            if p.grad is not None:
                by_dtype.setdefault(p.grad.dtype, []).append(p.grad)
        dp_group = self.seq_data_parallel_group
        dp_world_size = dist.get_world_size(dp_group) / self.sequence_parallel_size
        for grads in by_dtype.values():
            self.allreduce_no_retain(grads, dp_group, dp_world_size)

    def train_batch(self, batch, token_loss_fn):
        self.optimizer.zero_grad()
        logits = self.module(batch["input_ids"], batch["position_ids"])
        loss = self.loss(token_loss_fn(logits, batch["labels"]), batch["labels"] != -100)
        loss.backward()
        self._reduce_gradients()
        self.optimizer.step()
        return loss.detach()
