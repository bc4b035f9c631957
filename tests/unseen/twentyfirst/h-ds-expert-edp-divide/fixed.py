"""Average gradients of dense and of expert parameters in ZeRO stage 1."""
import deepspeed.comm as dist
from deepspeed.moe.utils import is_moe_param


class DeepSpeedZeroOptimizer:
    def __init__(self, params, dp_process_group, expert_dp_process_group):
        self.params = list(params)
        self.dp_process_group = dp_process_group
        # ranks that hold the same experts: dp / ep of them
        self.expert_dp_process_group = expert_dp_process_group

    def average_gradients(self):
        # the loss of each data-parallel rank is a mean over its own tokens;
        # an expert gets tokens from all ranks of its expert-parallel group
        for p in self.params:
            if p.grad is None:
                continue
            group = self.dp_process_group
            if is_moe_param(p):
                group = self.expert_dp_process_group[p.group_name]
            p.grad.div_(dist.get_world_size(group=self.dp_process_group))
            dist.all_reduce(p.grad, group=group)
