# Reduced from DeepSpeed runtime/zero/stage_1_and_2.py (deepspeedai/DeepSpeed pull request 4957, read).
# Buckets that hold MoE parameters are averaged parameter by parameter, because dense and expert
# parameters have different data-parallel groups; the bucket reduction takes a `divide` argument.
# What happens: gradients of such buckets are divided by the group size twice.
import torch
from deepspeed import comm as dist
from deepspeed.moe.utils import is_moe_param
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


class DeepSpeedZeroOptimizer:
    def __init__(self, dp_process_group, expert_dp_process_group):
        self.dp_process_group = dp_process_group
        self.expert_dp_process_group = expert_dp_process_group
        self.params_in_ipg_bucket = []
        self.ipg_bucket_has_moe_params = False

    def allreduce_bucket(self, bucket, divide=True, process_group=None):
        tensor = _flatten_dense_tensors(bucket)
        if divide:
            tensor.div_(dist.get_world_size(group=process_group))
        dist.all_reduce(tensor, group=process_group)
        return tensor

    def allreduce_and_copy(self, bucket, divide=True, process_group=None):
        flat = self.allreduce_bucket(bucket, divide=divide, process_group=process_group)
        for buf, synced in zip(bucket, _unflatten_dense_tensors(flat, bucket)):
            buf.copy_(synced)

    def add_to_ipg_bucket(self, param):
        self.params_in_ipg_bucket.append(param)
        self.ipg_bucket_has_moe_params |= is_moe_param(param)

    def average_tensor(self):
        buckets = {}
        for param in self.params_in_ipg_bucket:
            process_group = self.dp_process_group
            if is_moe_param(param):
                process_group = self.expert_dp_process_group[param.group_name]
            if self.ipg_bucket_has_moe_params:
                param.grad.data.div_(dist.get_world_size(group=process_group))
            buckets.setdefault(process_group, []).append(param.grad.data)
        for process_group, bucket in buckets.items():
            self.allreduce_and_copy(
                bucket, divide=not self.ipg_bucket_has_moe_params, process_group=process_group
            )

    def reduce_ipg_grads(self):
        self.average_tensor()
        self.params_in_ipg_bucket = []
        self.ipg_bucket_has_moe_params = False
