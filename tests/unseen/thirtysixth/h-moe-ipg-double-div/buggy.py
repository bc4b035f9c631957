# thread: https://github.com/deepspeedai/DeepSpeed/pull/4957
"""Bucketed gradient reduction of a ZeRO stage 1/2 optimizer for models with expert parameters."""
import torch
from deepspeed import comm as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


def is_moe_param(param) -> bool:
    return hasattr(param, "allreduce") and not param.allreduce


def split_half_float_double(tensors):
    buckets = {}
    for t in tensors:
        buckets.setdefault(t.dtype, []).append(t)
    return list(buckets.values())


class IPGReducer:
    def __init__(self, params, dp_process_group, expert_dp_process_group, reduce_bucket_size=int(5e8)):
        self.params = list(params)
        self.dp_process_group = dp_process_group
        self.expert_dp_process_group = expert_dp_process_group
        self.reduce_bucket_size = reduce_bucket_size
        self.reset_ipg()
        self.register_hooks()

    def reset_ipg(self):
        self.params_in_ipg_bucket = []
        self.elements_in_ipg_bucket = 0
        self.ipg_bucket_has_moe_params = False

    def register_hooks(self):
        for param in self.params:
            if param.requires_grad:
                param.register_post_accumulate_grad_hook(self.reduce_ready_partition)

    def reduce_ready_partition(self, param):
        if self.elements_in_ipg_bucket + param.numel() > self.reduce_bucket_size:
            self.reduce_ipg_grads()
        self.params_in_ipg_bucket.append(param)
        self.elements_in_ipg_bucket += param.numel()
        if is_moe_param(param):
            self.ipg_bucket_has_moe_params = True

    def allreduce_bucket(self, bucket, divide=True, process_group=None):
        tensor = _flatten_dense_tensors(bucket)
        process_group = self.dp_process_group if process_group is None else process_group
        if divide:
            tensor.div_(dist.get_world_size(group=process_group))
        dist.all_reduce(tensor, group=process_group)
        return tensor

    def allreduce_and_copy(self, small_bucket, divide=True, process_group=None):
        reduced = self.allreduce_bucket(small_bucket, divide=divide, process_group=process_group)
        for buf, synced in zip(small_bucket, _unflatten_dense_tensors(reduced, small_bucket)):
            buf.copy_(synced)

    def allreduce_no_retain(self, bucket, numel_per_bucket=500000000, divide=True, process_group=None):
        small_bucket, numel = [], 0
        for tensor in bucket:
            small_bucket.append(tensor)
            numel += tensor.numel()
            if numel > numel_per_bucket:
                self.allreduce_and_copy(small_bucket, divide, process_group)
                small_bucket, numel = [], 0
        if small_bucket:
            self.allreduce_and_copy(small_bucket, divide, process_group)

    def average_tensor(self, params):
        """Scale every gradient by the number of data-parallel ranks, then sum it over its group."""
        per_group = {}
        for param in params:
            group = self.expert_dp_process_group if is_moe_param(param) else self.dp_process_group
            param.grad.div_(dist.get_world_size(group=self.dp_process_group))
            per_group.setdefault(id(group), (group, []))[1].append(param.grad)

        for group, grads in per_group.values():
            for bucket in split_half_float_double(grads):
                self.allreduce_no_retain(bucket, divide=self.ipg_bucket_has_moe_params, process_group=group)  # BUG

    @torch.no_grad()
    def reduce_ipg_grads(self):
        if self.params_in_ipg_bucket:
            self.average_tensor(self.params_in_ipg_bucket)
        self.reset_ipg()


def train_batch(model, reducer: IPGReducer, optimizer, batch):
    loss, aux_loss = model(batch["input_ids"], labels=batch["labels"])
    (loss + 0.01 * aux_loss).backward()
    reducer.reduce_ipg_grads()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()
