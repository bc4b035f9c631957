"""Gradient hooks for layer norms under sequence parallelism.

Source: https://github.com/EleutherAI/gpt-neox/pull/1259
Wrong: the hook averages over the model-parallel ranks; each of them has the contribution of its own
part of the sequence, so the gradient is the sum (norms learn mp times too slowly).
Repair: sum.
"""
import torch
from megatron import mpu


def reduce_weight_grads_from_model_parallel_region(input_):
    """Hook for weights that see one part of the sequence on each model-parallel rank."""
    if mpu.get_model_parallel_world_size() == 1:
        return input_
    dtype = input_.dtype
    if mpu.get_fp32_allreduce():
        input_ = input_.float()
    input_ = input_.contiguous()
    torch.distributed.all_reduce(input_, group=mpu.get_model_parallel_group())
    return input_.to(dtype)


def mark_norms_for_sequence_parallel_grad_sync(module, neox_args):
    """Called after deepspeed.initialize, on the engine's own parameters."""
    if not neox_args.sequence_parallel:
        return
    for submodule in module.modules():
        if "norm" in type(submodule).__name__.lower():
            for name, param in submodule.named_parameters(recurse=False):
                if param.requires_grad:
                    param.register_hook(reduce_weight_grads_from_model_parallel_region)
