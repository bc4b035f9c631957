"""Gradient scaling factors of dense and expert buckets (Megatron-Core DistributedDataParallel)."""
import torch


class DistributedDataParallel(torch.nn.Module):
    def __init__(self, config, ddp_config, module, dp_cp_group, expt_dp_group):
        super().__init__()
        self.module, self.ddp_config = module, ddp_config
        self.dp_cp_group, self.expt_dp_group = dp_cp_group, expt_dp_group

        if config.calculate_per_token_loss:
            gradient_scaling_factor = 1.0
            expert_gradient_scaling_factor = 1.0
        elif ddp_config.average_in_collective:
            gradient_scaling_factor = 1.0
            expert_gradient_scaling_factor = 1.0  # BUG: the mean over expt_dp leaves a factor ep
        else:
            gradient_scaling_factor = 1.0 / dp_cp_group.size()
            expert_gradient_scaling_factor = 1.0 / dp_cp_group.size()

        self.average = ddp_config.average_in_collective and not config.calculate_per_token_loss
        self.buckets = []
        for param in module.parameters():
            if getattr(param, "allreduce", True):
                self.buckets.append((param, dp_cp_group, gradient_scaling_factor))
            else:
                self.buckets.append((param, expt_dp_group, expert_gradient_scaling_factor))

    def finish_grad_sync(self):
        op = torch.distributed.ReduceOp.AVG if self.average else torch.distributed.ReduceOp.SUM
        for param, group, scaling_factor in self.buckets:
            if scaling_factor != 1.0:
                param.main_grad.mul_(scaling_factor)
            torch.distributed.all_reduce(param.main_grad, op=op, group=group)
