"""Gradient averaging of the ZeRO optimizer with expert parameters."""
import torch
import torch.distributed as dist


def is_moe_param(param):
    return hasattr(param, "allreduce") and not param.allreduce


class DeepSpeedZeroOptimizer:
    def __init__(self, params, dp_process_group, expert_dp_process_group):
        self.params = list(params)
        self.dp_process_group = dp_process_group
        self.expert_dp_process_group = expert_dp_process_group

    def average_gradients(self):
        # the loss is a mean over the samples of one data rank; an expert's
        # gradient already holds the tokens of all ranks of its EP group
        for p in self.params:
            group = self.expert_dp_process_group if is_moe_param(p) else self.dp_process_group
            p.grad.div_(dist.get_world_size(group=self.dp_process_group))
            dist.all_reduce(p.grad, group=group)
