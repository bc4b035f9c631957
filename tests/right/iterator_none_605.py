import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu


def _push(x):
    dist.broadcast(x, mpu.get_tensor_model_parallel_src_rank(), group=mpu.get_tensor_model_parallel_group())


def _pull(shape):
    x = torch.empty(shape, device="cuda")
    dist.broadcast(x, mpu.get_tensor_model_parallel_src_rank(), group=mpu.get_tensor_model_parallel_group())
    return x


def get_batch(it, shape):
    """Only the first rank of the tensor group has an iterator."""
    if it is not None and mpu.get_tensor_model_parallel_rank() == 0:
        x = next(it).cuda()
        _push(x)
    if it is None:
        x = _pull(shape)
    return x
