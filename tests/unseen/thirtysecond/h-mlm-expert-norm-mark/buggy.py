"""Grouped experts and gradient norm.
NVIDIA/Megatron-LM #5916, "Fix gradient-norm undercounting when using EP and TP".
"""
import torch
import transformer_engine as te
from megatron.core import parallel_state
from megatron.core.tensor_parallel import param_is_not_tensor_parallel_duplicate


class TEGroupedLinear(te.pytorch.GroupedLinear):
    """Experts of this expert-parallel rank; the input comes dispatched, TE sees no TP."""

    def __init__(self, num_gemms, input_size, output_size, *, parallel_mode, config):
        etp = config.expert_tensor_parallel_size
        if parallel_mode == "column":
            output_size //= etp
        elif parallel_mode == "row":
            input_size //= etp
        super().__init__(num_gemms, input_size, output_size, bias=False, parallel_mode=None, tp_size=1)
        use_expert_pgs = (
            config.expert_model_parallel_size > 1
            or config.expert_tensor_parallel_size != config.tensor_model_parallel_size
        )
        for param in self.parameters():
            setattr(param, "allreduce", not use_expert_pgs)  # BUG


def sum_of_squares(params):
    total = torch.zeros((), device="cuda")
    for p in params:
        if p.main_grad is not None and param_is_not_tensor_parallel_duplicate(p):
            total += p.main_grad.float().pow(2).sum()
    return total


def clip_grad_norm(params, max_norm):
    dense = sum_of_squares([p for p in params if getattr(p, "allreduce", True)])
    expert = sum_of_squares([p for p in params if not getattr(p, "allreduce", True)])
    torch.distributed.all_reduce(dense, group=parallel_state.get_model_parallel_group())
    torch.distributed.all_reduce(expert, group=parallel_state.get_expert_tensor_model_pipeline_parallel_group())
    total_norm = (dense + expert).sqrt()
    coeff = torch.clamp(max_norm / (total_norm + 1.0e-6), max=1.0)
    for p in params:
        p.main_grad.mul_(coeff)
    return total_norm
