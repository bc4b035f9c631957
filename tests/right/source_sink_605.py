import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu


def send_flag(x):
    dist.broadcast(x, mpu.get_tensor_model_parallel_src_rank(), group=mpu.get_tensor_model_parallel_group())


def recv_flag():
    x = torch.empty(1)
    dist.broadcast(x, mpu.get_tensor_model_parallel_src_rank(), group=mpu.get_tensor_model_parallel_group())
    return x


def source(it):
    if mpu.get_tensor_model_parallel_rank() == 0:
        x = next(it)
        send_flag(x)
        return x


def sink():
    if mpu.get_tensor_model_parallel_rank() != 0:
        return recv_flag()


def flag(it):
    x = source(it)
    y = sink()
    return x if x is not None else y
