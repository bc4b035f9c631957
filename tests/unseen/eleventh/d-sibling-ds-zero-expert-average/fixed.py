"""Gradient averaging of ZeRO stage 1 with mixture-of-experts parameters."""
from deepspeed import comm as dist
from deepspeed.moe.utils import is_moe_param

# spmd: mesh dense = dp
# spmd: mesh sparse = edp, ep over dense
# spmd: group self.dp_process_group = dp; group self.expert_dp_process_group = edp


class DeepSpeedZeroOptimizer:
    def __init__(self, params, dp_process_group, expert_dp_process_group):
        self.params = list(params)
        self.dp_process_group = dp_process_group
        self.expert_dp_process_group = expert_dp_process_group

    def reduce_gradients(self):
        # the loss is a mean over the samples of one data-parallel rank; the experts of a rank
        # already hold the sum over the ranks whose tokens were dispatched to it
        for param in self.params:
            if param.grad is None:
                continue
            group = self.expert_dp_process_group if is_moe_param(param) else self.dp_process_group
            param.grad.data.div_(dist.get_world_size(group=self.dp_process_group))
            dist.all_reduce(param.grad.data, group=group)
