# microsoft/DeepSpeed issue 5618, pull request 6546 (commit b647fb247)
"""Gradient averaging of a ZeRO optimizer with mixture-of-experts layers."""
import torch
import torch.distributed as dist


def is_moe_param(param):
    return hasattr(param, "allreduce") and not param.allreduce


class DeepSpeedZeroOptimizer:
    def __init__(self, params, dp_process_group, expert_dp_process_group, reduce_bucket_size):
        self.params = list(params)
        self.dp_process_group = dp_process_group  # all ranks that see different samples
        self.expert_dp_process_group = expert_dp_process_group  # group name -> ranks with the same experts
        self.reduce_bucket_size = reduce_bucket_size
        self.params_in_ipg_bucket, self.elements_in_ipg_bucket = [], 0

    def reduce_independent_p_g_buckets(self, param):
        if self.elements_in_ipg_bucket + param.numel() > self.reduce_bucket_size:
            self.reduce_ipg_grads()
        self.params_in_ipg_bucket.append(param)
        self.elements_in_ipg_bucket += param.numel()

    def reduce_ipg_grads(self):
        for param in self.params_in_ipg_bucket:
            self.average_tensor(param)
        self.params_in_ipg_bucket, self.elements_in_ipg_bucket = [], 0

    def average_tensor(self, param):
        process_group = self.dp_process_group
        if is_moe_param(param):
            process_group = self.expert_dp_process_group[param.group_name]
        param.grad.div_(dist.get_world_size(group=self.dp_process_group))
        dist.all_reduce(param.grad, group=process_group)

    def backward(self, loss):
        loss.backward()  # mean over the samples of this rank; tokens travel by all-to-all
        for param in self.params:
            if param.grad is None:
                param.grad = torch.zeros_like(param)
            self.reduce_independent_p_g_buckets(param)
        self.reduce_ipg_grads()
