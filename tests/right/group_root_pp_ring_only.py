"""The group is that of all ranks, or the rank is translated before it is used."""
import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu


def stage(x, layer, args):
    """all ranks are stages of one pipeline"""
    assert mpu.get_pipeline_model_parallel_world_size() == dist.get_world_size()
    rank, size = mpu.get_pipeline_model_parallel_rank(), mpu.get_pipeline_model_parallel_world_size()
    group = mpu.get_pipeline_model_parallel_group()
    if rank > 0:
        dist.recv(x, src=rank - 1, group=group)
    y = layer(x)
    if rank < size - 1:
        dist.send(y, dst=rank + 1, group=group)
    return y
