"""What the hook reads is the same in every round, or the hook is gone before the next one."""
import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu


def register(model):
    for name, p in model.named_parameters():
        if getattr(p, "sequence_parallel", False):
            group = mpu.get_tensor_model_parallel_group()

            def hook(grad):
                grad = grad.clone()
                dist.all_reduce(grad, group=group)
                return grad

            p.register_hook(hook)
