"""ZeRO stage 2: average the gradients of a bucket."""
import torch.distributed as dist
from deepspeed.moe.utils import is_moe_param
from deepspeed.utils import groups


class DeepSpeedZeroOptimizer:
    def __init__(self, params):
        self.params = list(params)
        self.dp_process_group = groups._get_data_parallel_group()
        # one group per expert-parallel size, keyed by param.group_name
        self.expert_dp_process_group = groups._get_expert_data_parallel_group_dict()

    def average_tensor(self, grad, process_group):
        grad.div_(dist.get_world_size(group=self.dp_process_group))
        dist.all_reduce(grad, group=process_group)

    def reduce_gradients(self):
        for param in self.params:
            process_group = self.dp_process_group
            if is_moe_param(param):
                process_group = self.expert_dp_process_group[param.group_name]
            self.average_tensor(param.grad.data, process_group)
