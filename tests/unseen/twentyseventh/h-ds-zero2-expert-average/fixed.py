"""Average gradients of a ZeRO-2 bucket, dense and expert parameters mixed."""
import deepspeed.comm as dist
from deepspeed.moe.utils import is_moe_param


class GradientBucket:
    def __init__(self, dp_process_group, expert_dp_process_group):
        self.dp_process_group = dp_process_group
        self.expert_dp_process_group = expert_dp_process_group  # by expert group name
        self.params = []

    def add(self, param):
        self.params.append(param)

    def group_of(self, param):
        if is_moe_param(param):
            return self.expert_dp_process_group[param.group_name]
        return self.dp_process_group

    def average_gradients(self):
        # each loss is the mean over the tokens of one data-parallel rank
        handles = []
        for param in self.params:
            process_group = self.group_of(param)
            param.grad.div_(dist.get_world_size(group=self.dp_process_group))
            handles.append(dist.all_reduce(param.grad, group=process_group, async_op=True))
        for handle in handles:
            handle.wait()
        self.params.clear()
