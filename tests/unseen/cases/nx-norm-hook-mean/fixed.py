"""Hooks that synchronise norm gradients over sequence shards."""
import torch.distributed as dist


def mark_norms_for_sequence_parallel_grad_sync(model, mpu):
    def reduce_grad(grad):
        # each model-parallel rank saw a different part of the sequence
        dist.all_reduce(grad, group=mpu.get_model_parallel_group())
        return grad

    for module in model.modules():
        if "norm" in type(module).__name__.lower():
            for param in module.parameters():
                if param.requires_grad:
                    param.register_hook(reduce_grad)
