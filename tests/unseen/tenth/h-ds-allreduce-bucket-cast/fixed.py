"""Bucketed gradient all-reduce with a separate communication dtype (DeepSpeed engine)."""
import torch
from deepspeed import comm as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


class DeepSpeedEngine:
    def __init__(self, module, communication_data_type, gradient_predivide_factor, dp_group):
        self.module = module
        self.communication_data_type = communication_data_type
        self.gradient_predivide_factor = gradient_predivide_factor
        self.data_parallel_group = dp_group
        self.dp_world_size = dist.get_world_size(group=dp_group)

    def allreduce_bucket(self, bucket):
        tensor = _flatten_dense_tensors(bucket)
        tensor_to_allreduce = tensor
        if self.communication_data_type != tensor.dtype:
            tensor_to_allreduce = tensor.to(self.communication_data_type)

        tensor_to_allreduce.mul_(1.0 / self.gradient_predivide_factor)
        dist.all_reduce(tensor_to_allreduce, group=self.data_parallel_group)
        tensor_to_allreduce.mul_(self.gradient_predivide_factor / self.dp_world_size)
        if tensor_to_allreduce is not tensor:
            tensor.copy_(tensor_to_allreduce)
        return tensor

    def buffered_allreduce(self):
        grads = [p.grad.data for p in self.module.parameters() if p.grad is not None]
        reduced = self.allreduce_bucket(grads)
        for buf, synced in zip(grads, _unflatten_dense_tensors(reduced, grads)):
            buf.copy_(synced)
