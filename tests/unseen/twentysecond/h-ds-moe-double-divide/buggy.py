"""ZeRO gradient averaging with expert parameters in the bucket (deepspeedai/DeepSpeed#4957)."""
import torch.distributed as dist


def is_moe_param(p):
    return hasattr(p, "allreduce") and not p.allreduce


class DeepSpeedZeroOptimizer:
    def __init__(self, dp_group, expert_dp_group):
        self.dp_group, self.expert_dp_group = dp_group, expert_dp_group
        self.params_in_ipg_bucket = []
        self.ipg_bucket_has_moe_params = False

    def allreduce_and_copy(self, grad, group, divide=True):
        if divide:
            grad.div_(dist.get_world_size(self.dp_group))
        dist.all_reduce(grad, group=group)

    def average_tensor(self):
        for p in self.params_in_ipg_bucket:
            group = self.expert_dp_group if is_moe_param(p) else self.dp_group
            if self.ipg_bucket_has_moe_params:
                # experts and dense parameters have different groups: average one by one
                p.grad.div_(dist.get_world_size(self.dp_group))
            self.allreduce_and_copy(p.grad, group)  # BUG: divides a second time
