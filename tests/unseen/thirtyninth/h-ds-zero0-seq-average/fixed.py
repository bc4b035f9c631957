"""Gradient all-reduce of the engine when no ZeRO stage is on."""
import torch
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


class DeepSpeedEngine:
    def __init__(self, module, groups, optimizer, bucket_numel=500_000_000):
        self.module, self.groups, self.optimizer = module, groups, optimizer
        self.bucket_numel = bucket_numel
        self.sequence_parallel_size = dist.get_world_size(groups.sequence_parallel_group)

    def backward(self, loss_sum, num_tokens):
        # num_tokens: labels of the whole sequence, all sequence-parallel ranks together
        (loss_sum / num_tokens).backward()

    def allreduce_bucket(self, bucket, dp_group, dp_world_size=None):
        if dp_world_size is None:
            dp_world_size = dist.get_world_size(dp_group)
        flat = _flatten_dense_tensors(bucket)
        dist.all_reduce(flat, group=dp_group)
        flat.mul_(1.0 / dp_world_size)
        return flat

    def allreduce_and_copy(self, bucket, dp_group, dp_world_size=None):
        flat = self.allreduce_bucket(bucket, dp_group, dp_world_size)
        for buf, synced in zip(bucket, _unflatten_dense_tensors(flat, bucket)):
            buf.copy_(synced)

    def allreduce_no_retain(self, grads, dp_group, dp_world_size=None):
        small, numel = [], 0
        for g in grads:
            small.append(g)
            numel += g.numel()
            if numel > self.bucket_numel:
                self.allreduce_and_copy(small, dp_group, dp_world_size)
                small, numel = [], 0
        if small:
            self.allreduce_and_copy(small, dp_group, dp_world_size)

    def sparse_allreduce(self, grad, dp_group, dp_world_size):
        dense = grad.to_dense() / dp_world_size
        dist.all_reduce(dense, group=dp_group)
        return dense

    def allreduce_gradients(self):
        group = self.groups.sequence_data_parallel_group
        dp_world_size = dist.get_world_size(group) // self.sequence_parallel_size
        dense = []
        for p in self.module.parameters():
            if p.grad is None:
                continue
            if p.grad.is_sparse:
                p.grad = self.sparse_allreduce(p.grad, group, dp_world_size)
            else:
                dense.append(p.grad)
        self.allreduce_no_retain(dense, dp_group=group, dp_world_size=dp_world_size)

    def step(self):
        self.allreduce_gradients()
        self.optimizer.step()
        self.optimizer.zero_grad()
