"""Experts are marked; both kinds of gradients are divided by the number of ranks that have data, whatever they are summed over."""

import torch
from megatron.core import parallel_state


def finish_grad_sync(model):
    dp = parallel_state.get_data_parallel_world_size(with_context_parallel=True)
    for param in model.parameters():
        if param.grad is None:
            continue
        if getattr(param, "allreduce", True):
            param.grad.div_(dp)
            torch.distributed.all_reduce(
                param.grad, group=parallel_state.get_data_parallel_group(with_context_parallel=True)
            )
        else:
            param.grad.div_(dp)
            torch.distributed.all_reduce(param.grad, group=parallel_state.get_expert_data_parallel_group())
