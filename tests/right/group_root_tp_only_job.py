"""The group is that of all ranks, or the rank is translated before it is used."""
import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu


def main(model, x):
    mpu.initialize_model_parallel(tensor_model_parallel_size=dist.get_world_size())
    group = mpu.get_tensor_model_parallel_group()
    for r in range(mpu.get_tensor_model_parallel_world_size()):
        y = x.clone()
        dist.broadcast(y, src=r, group=group)
        x = x + y
    return x
