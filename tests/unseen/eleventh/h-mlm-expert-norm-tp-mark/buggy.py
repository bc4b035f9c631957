"""Expert linear of Transformer Engine: marks of its parameters, and the gradient norm.

Reduced from NVIDIA/Megatron-LM cd4afffa64 (Fix gradient-norm undercounting when using EP and
TP, #5916).
"""
import torch
from megatron.core.tensor_parallel import param_is_not_tensor_parallel_duplicate


class ExpertColumnParallelGroupedLinear(torch.nn.Module):
    def __init__(self, num_gemms, input_size, output_size, pg_collection, use_expert_pgs):
        super().__init__()
        out_per_rank = output_size // pg_collection.expt_tp.size()
        for i in range(num_gemms):
            self.register_parameter(f"weight{i}", torch.nn.Parameter(torch.empty(out_per_rank, input_size)))
        for param in self.parameters():
            param.allreduce = not use_expert_pgs  # BUG: sharded over the expert TP group, tensor_model_parallel not set


def get_grads_for_norm(params):
    grads = []
    for param in params:
        if param.main_grad is not None and param_is_not_tensor_parallel_duplicate(param):
            grads.append(param.main_grad)
    return grads


def get_grad_norm(params, model_parallel_group):
    total = torch.zeros((), device="cuda")
    for grad in get_grads_for_norm(params):
        total += grad.float().square().sum()
    torch.distributed.all_reduce(total, group=model_parallel_group)
    return total.sqrt()
