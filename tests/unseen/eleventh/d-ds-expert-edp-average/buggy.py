"""ZeRO stage 1/2: average of one bucket which holds dense and expert gradients.

Reduced from microsoft/DeepSpeed b647fb2470 (Fix expert grad scaling problem with ZeRO
optimizer, #6546).
"""
from deepspeed import comm as dist
from deepspeed.moe.utils import is_moe_param

# spmd: mesh world = edp, ep; alias dp = edp * ep


class DeepSpeedZeroOptimizer:
    def __init__(self, dp_process_group, expert_dp_process_group):
        # spmd: group self.dp_process_group = dp
        self.dp_process_group = dp_process_group
        self.expert_dp_process_group = expert_dp_process_group  # by expert group name, over edp

    def average_tensor(self, params_in_ipg_bucket):
        """The loss of each data rank is the mean over its own samples."""
        for param in params_in_ipg_bucket:
            process_group = self.dp_process_group
            if is_moe_param(param):
                # the backward all-to-all has brought the tokens of all ep ranks here
                process_group = self.expert_dp_process_group[param.group_name]
            param.grad.div_(dist.get_world_size(group=process_group))  # BUG: an expert sees the samples of all dp ranks
            dist.all_reduce(param.grad, group=process_group)
