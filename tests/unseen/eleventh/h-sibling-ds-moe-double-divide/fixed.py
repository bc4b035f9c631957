"""Bucketed gradient averaging of ZeRO stage 2."""
from deepspeed import comm as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


class ZeroStage2Optimizer:
    def __init__(self, dp_process_group, expert_dp_process_group):
        self.dp_process_group = dp_process_group
        self.expert_dp_process_group = expert_dp_process_group
        self.params_in_ipg_bucket = []
        self.ipg_bucket_has_moe_params = False

    def allreduce_bucket(self, bucket, process_group, divide):
        flat = _flatten_dense_tensors(bucket)
        if divide:
            flat.div_(dist.get_world_size(group=process_group))
        dist.all_reduce(flat, group=process_group)
        for buf, synced in zip(bucket, _unflatten_dense_tensors(flat, bucket)):
            buf.copy_(synced)

    def average_bucket(self):
        dense, moe = [], []
        for param in self.params_in_ipg_bucket:
            param.grad.data.div_(dist.get_world_size(group=self.dp_process_group))
            (moe if hasattr(param, "group_name") else dense).append(param.grad.data)
        for bucket, group in ((dense, self.dp_process_group), (moe, self.expert_dp_process_group)):
            if bucket:
                self.allreduce_bucket(bucket, group, divide=False)
