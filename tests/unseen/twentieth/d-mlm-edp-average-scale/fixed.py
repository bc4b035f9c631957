"""Scaling of dense and expert gradients when the collective averages."""
import torch
from megatron.core import parallel_state


class DistributedDataParallel:
    def __init__(self, module):
        self.module = module
        self.dp_cp_group = parallel_state.get_data_parallel_group(with_context_parallel=True)
        self.expt_dp_group = parallel_state.get_expert_data_parallel_group()
        # each gradient is to end up as its sum divided by the dense dp x cp size
        self.gradient_scaling_factor = 1.0
        self.expert_gradient_scaling_factor = (
            parallel_state.get_expert_data_parallel_world_size()
            / parallel_state.get_data_parallel_world_size(with_context_parallel=True)
        )

    def finish_grad_sync(self):
        for p in self.module.parameters():
            if getattr(p, "allreduce", True):
                group, factor = self.dp_cp_group, self.gradient_scaling_factor
            else:
                group, factor = self.expt_dp_group, self.expert_gradient_scaling_factor
            p.main_grad *= factor
            torch.distributed.all_reduce(p.main_grad, op=torch.distributed.ReduceOp.AVG, group=group)
