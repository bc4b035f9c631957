"""Gradient reduction of an engine with mixture of experts: dense gradients over all data ranks, those of experts over their own group."""

import torch
from deepspeed import comm as dist
from deepspeed.moe.utils import is_moe_param
from deepspeed.utils import groups
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


class GradientReducer:
    def __init__(self, module, gradient_predivide_factor=1.0, bucket_elements=500_000_000):
        self.module = module
        self.gradient_predivide_factor = gradient_predivide_factor
        self.bucket_elements = bucket_elements
        self.expert_tensor_parallel = groups._get_expert_model_parallel_world_size() > 1

    def allreduce_bucket(self, bucket, dp_group):
        tensor = _flatten_dense_tensors(bucket)
        size = dist.get_world_size(group=dp_group)
        if self.gradient_predivide_factor != 1.0:
            tensor.mul_(1.0 / self.gradient_predivide_factor)
            dist.all_reduce(tensor, group=dp_group)
            tensor.mul_(self.gradient_predivide_factor / size)
        else:
            tensor.mul_(1.0 / size)
            dist.all_reduce(tensor, group=dp_group)
        for buf, synced in zip(bucket, _unflatten_dense_tensors(tensor, bucket)):
            buf.copy_(synced)

    def allreduce_no_retain(self, grads, dp_group):
        bucket, elements = [], 0
        for grad in grads:
            bucket.append(grad)
            elements += grad.numel()
            if elements > self.bucket_elements:
                self.allreduce_bucket(bucket, dp_group)
                bucket, elements = [], 0
        if bucket:
            self.allreduce_bucket(bucket, dp_group)

    def split(self):
        dense, experts = [], {}
        for param in self.module.parameters():
            if not param.requires_grad:
                continue
            if param.grad is None:
                # Ranks must agree on the buckets.
                param.grad = torch.zeros(param.size(), dtype=param.dtype, device=param.device)
            if is_moe_param(param):
                experts.setdefault(param.group_name, []).append(param.grad.data)
            else:
                dense.append(param.grad.data)
        return dense, experts

    def reduce(self):
        dense, experts = self.split()
        self.allreduce_no_retain(dense, groups._get_data_parallel_group())
        for name, grads in experts.items():
            # Tokens of all ranks of the expert-parallel group are in these already.
            for grad in grads:
                grad.mul_(1.0 / groups._get_expert_parallel_world_size(name))
            self.allreduce_no_retain(grads, groups._get_expert_data_parallel_group(name))
