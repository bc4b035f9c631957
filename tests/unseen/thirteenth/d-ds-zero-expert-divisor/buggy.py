"""Average the gradients of a ZeRO bucket that holds dense and expert parameters.

Source: microsoft/DeepSpeed issue #6545, PR #6546.
"""
import torch
from deepspeed import comm as dist
from deepspeed.moe.utils import is_moe_param


class DeepSpeedZeroOptimizer(object):
    def __init__(self, dp_process_group, expert_dp_process_group, gradient_predivide_factor=1.0):
        self.dp_process_group = dp_process_group
        # group name -> ranks that hold the same expert
        self.expert_dp_process_group = expert_dp_process_group
        self.gradient_predivide_factor = gradient_predivide_factor
        self.params_in_ipg_bucket = []
        self.grads_in_ipg_bucket = []

    def reduce_independent_p_g_buckets_and_remove_grads(self, param):
        self.params_in_ipg_bucket.append(param)
        self.grads_in_ipg_bucket.append(param.grad)

    def average_tensor(self):
        for param, grad in zip(self.params_in_ipg_bucket, self.grads_in_ipg_bucket):
            process_group = self.dp_process_group
            if is_moe_param(param):
                process_group = self.expert_dp_process_group[param.group_name]
            world_size = dist.get_world_size(group=process_group)  # BUG
            grad.div_(world_size)
            dist.all_reduce(grad, group=process_group)

    def reduce_ipg_grads(self):
        # tokens of all data-parallel ranks reach the experts through all-to-all
        self.average_tensor()
        self.params_in_ipg_bucket.clear()
        self.grads_in_ipg_bucket.clear()
