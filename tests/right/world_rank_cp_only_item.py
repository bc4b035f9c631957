"""The only group is that of all ranks."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


def main(model, batch):
    cp_rank = dist.get_rank()
    mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("cp",))
    cp_size = mesh["cp"].size()
    shard = batch.size(1) // cp_size
    return model(batch[:, cp_rank * shard : (cp_rank + 1) * shard])
