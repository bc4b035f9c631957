# Reduced from GPT-NeoX megatron/training.py and model/utils.py (EleutherAI/gpt-neox pull request 1259, read).
# With sequence parallelism each model-parallel rank runs the norms on its part of the sequence,
# the gradient of a norm weight is the sum over the parts.
# What happens: the hook takes the mean, norm gradients are 1/mp of the right ones and the norm
# weights move much slower than without sequence parallelism.
import deepspeed
import torch
from megatron import mpu
from megatron.model.norms import LayerNorm, RMSNorm, ScaleNorm


def reduce_weight_grads_from_model_parallel_region(input_):
    """Hook: combine the gradient over the model-parallel ranks."""
    if mpu.get_model_parallel_world_size() == 1:
        return input_
    dt = input_.dtype
    input_ = input_.to(torch.float32, copy=True)
    torch.distributed.all_reduce(input_, group=mpu.get_model_parallel_group())
    input_ = input_ / mpu.get_model_parallel_world_size()  # BUG
    return input_.to(dt)


def mark_norms_for_sequence_parallel_grad_sync(module, neox_args):
    if not neox_args.sequence_parallel:
        return
    for module_ in module.modules():
        if isinstance(module_, (LayerNorm, RMSNorm, ScaleNorm)):
            for param in module_.parameters(recurse=False):
                if param.requires_grad:
                    param.register_hook(reduce_weight_grads_from_model_parallel_region)


def setup_model_and_optimizer(neox_args, model, optimizer, param_groups, lr_scheduler):
    model, optimizer, _, lr_scheduler = deepspeed.initialize(
        model=model,
        optimizer=optimizer,
        args=neox_args,
        lr_scheduler=lr_scheduler,
        dist_init_required=False,
        model_parameters=param_groups,
        mpu=mpu if not neox_args.is_pipe_parallel else None,
    )
    mark_norms_for_sequence_parallel_grad_sync(model, neox_args)
    return model, optimizer, lr_scheduler
