"""Gradients of experts: fewer ranks keep a copy of one, so they are reduced in their own group and scaled by the number of data ranks."""

import torch
from megatron.core import parallel_state


class SequentialExperts(torch.nn.Module):
    def __init__(self, config, expert_cls):
        super().__init__()
        count = config.num_moe_experts // parallel_state.get_expert_model_parallel_world_size()
        self.local_experts = torch.nn.ModuleList([expert_cls(config) for _ in range(count)])
        expert_parallel = config.expert_model_parallel_size > 1
        for expert in self.local_experts:
            for param in expert.parameters():
                setattr(param, "allreduce", not expert_parallel)

    def forward(self, tokens, tokens_per_expert):
        parts = torch.split(tokens, tokens_per_expert.tolist())
        return torch.cat([expert(part) for expert, part in zip(self.local_experts, parts)])


class GradReducer:
    """Each data rank computes the mean over its own batch: the mean over the global batch is the sum divided by the number of data ranks,
    also for experts, whose tokens come from all ranks of the expert-parallel group already."""

    def __init__(self, module):
        self.module = module
        self.dp_size = parallel_state.get_data_parallel_world_size(with_context_parallel=True)
        self.handles = []

    def start(self):
        for param in self.module.parameters():
            if not param.requires_grad:
                continue
            if getattr(param, "allreduce", True):
                group = parallel_state.get_data_parallel_group(with_context_parallel=True)
            else:
                group = parallel_state.get_expert_data_parallel_group()
            param.main_grad.mul_(1.0 / self.dp_size)
            self.handles.append(torch.distributed.all_reduce(param.main_grad, group=group, async_op=True))

    def finish(self):
        while self.handles:
            self.handles.pop().wait()


def finalize(reducer, optimizer):
    reducer.start()
    reducer.finish()
    success, norm, _ = optimizer.step()
    return success, norm
