"""Gradient hook of the norms under sequence parallelism."""
import torch
import torch.distributed as dist
from megatron import mpu


def reduce_weight_grads_from_model_parallel_region(input_):
    """All-reduce a weight gradient over the model-parallel group."""
    if mpu.get_model_parallel_world_size() == 1:
        return input_
    if input_.dtype == torch.bfloat16:
        input_ = input_.float()
    dist.all_reduce(input_, op=dist.ReduceOp.SUM, group=mpu.get_model_parallel_group())
    return input_


def mark_norms_for_sequence_parallel_grad_sync(model, neox_args):
    # each model-parallel rank normalises its own part of the sequence, so the
    # gradient of a norm weight is a partial sum on each of them
    for module in model.modules():
        if "norm" in type(module).__name__.lower():
            for _, param in module.named_parameters():
                if param.requires_grad and neox_args.sequence_parallel:
                    param.register_hook(reduce_weight_grads_from_model_parallel_region)
