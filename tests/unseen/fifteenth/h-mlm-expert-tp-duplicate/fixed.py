# Reduced from Megatron-LM (NVIDIA/Megatron-LM pull request 5916, read): gradient norm with EP > 1 and TP > 1.
# With expert_tensor_parallel_size=1 the ranks of one tensor-parallel group hold different experts,
# whose grouped weights carry allreduce=False and no tensor_model_parallel attribute.
# What happens: experts on tensor-parallel ranks above 0 are left out of the norm, too little clipping.
import torch
from megatron.core import parallel_state


def param_is_not_shared(param):
    return not hasattr(param, 'shared') or not param.shared


def param_is_not_tensor_parallel_duplicate(param):
    if hasattr(param, 'tensor_model_parallel') and param.tensor_model_parallel:
        return True
    if not getattr(param, 'allreduce', True):
        return parallel_state.get_expert_tensor_parallel_rank() == 0
    return parallel_state.get_tensor_model_parallel_rank() == 0


def get_main_grads_for_grad_norm(params):
    return [
        p.grad
        for p in params
        if p.grad is not None and param_is_not_shared(p) and param_is_not_tensor_parallel_duplicate(p)
    ]


@torch.no_grad()
def get_grad_norm(dense_params, expert_params):
    """Dense and expert parameters have their own optimizers and groups."""
    total = torch.zeros(1, dtype=torch.float32, device='cuda')
    for params, group in (
        (dense_params, parallel_state.get_model_parallel_group()),
        (expert_params, parallel_state.get_expert_tensor_model_pipeline_parallel_group()),
    ):
        part = torch.zeros(1, dtype=torch.float32, device='cuda')
        for grad in get_main_grads_for_grad_norm(params):
            part += torch.norm(grad.float(), 2) ** 2
        torch.distributed.all_reduce(part, op=torch.distributed.ReduceOp.SUM, group=group)
        total += part
    return total.item() ** 0.5
