"""Averaging of dense and of expert gradients."""
import torch
import torch.distributed as dist


def is_moe_param(param):
    return hasattr(param, "allreduce") and not param.allreduce


class Engine:
    def __init__(self, module, dp_group, expert_dp_group):
        self.module = module
        self.dp_group = dp_group
        # ranks that hold the same experts: a part of dp_group of dp / ep ranks
        self.expert_dp_group = expert_dp_group

    def allreduce_gradients(self):
        # the loss is a mean over the samples of one data rank; an expert sees
        # the tokens of all ep data ranks that send to it
        for p in self.module.parameters():
            if p.grad is None:
                continue
            if is_moe_param(p):
                p.grad.div_(dist.get_world_size(self.expert_dp_group))  # BUG: dp ranks contribute, not dp / ep
                dist.all_reduce(p.grad, group=self.expert_dp_group)
            else:
                p.grad.div_(dist.get_world_size(self.dp_group))
                dist.all_reduce(p.grad, group=self.dp_group)
