"""The group is that of all ranks, or the rank is translated before it is used."""
import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu


def share(x, src):
    """`src`: the rank in the tensor-parallel group that has the data"""
    group = mpu.get_tensor_model_parallel_group()
    if mpu.get_tensor_model_parallel_rank() != src:
        x = torch.empty_like(x)
    src = dist.get_global_rank(group, src)
    dist.broadcast(x, src=src, group=group)
    return x
