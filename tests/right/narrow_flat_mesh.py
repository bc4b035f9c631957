"""The mesh dim that the wrapper gets is made of both dims."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def build(model, dp, cp):
    mesh = init_device_mesh("cuda", (dp, cp), mesh_dim_names=("batch", "cp"))
    mesh[("batch", "cp")]._flatten("dp")
    for block in model.blocks:
        fully_shard(block, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    return model, mesh


def shard_batch(input_ids, mesh):
    cp_rank, cp = mesh["cp"].get_local_rank(), mesh["cp"].size()
    n = input_ids.size(1) // cp
    return input_ids[:, cp_rank * n : (cp_rank + 1) * n]
