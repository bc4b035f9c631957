"""The only group is that of all ranks."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DataLoader, Subset


def make_loader(dataset, rank, world_size, batch_size):
    mine = Subset(dataset, range(rank, len(dataset), world_size))
    return DataLoader(mine, batch_size=batch_size, shuffle=True)


def setup(dataset):
    mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("dp",))
    rank = dist.get_rank()
    return mesh, make_loader(dataset, rank=rank, world_size=mesh["dp"].size(), batch_size=8)
