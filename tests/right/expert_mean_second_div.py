"""What is divided is made up for elsewhere."""
import torch
import torch.distributed as dist


class GradAverager:
    def __init__(self, dp_group, ep_group, expert_dp_group):
        self.dp_group, self.ep_group, self.expert_dp_group = dp_group, ep_group, expert_dp_group

    @torch.no_grad()
    def average(self, model):
        for name, param in model.named_parameters():
            if param.grad is None:
                continue
            is_expert = ".experts." in name
            group = self.expert_dp_group if is_expert else self.dp_group
            param.grad.div_(dist.get_world_size(group))
            if is_expert:
                # tokens of all ranks of the expert-parallel group have reached these
                param.grad.div_(dist.get_world_size(self.ep_group))
            dist.all_reduce(param.grad, group=group)
