"""The mesh has one dim: its ranks are all ranks."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DataLoader, DistributedSampler


def train_loader(dataset):
    mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("dp",))
    sampler = DistributedSampler(dataset, num_replicas=mesh["dp"].size(), rank=dist.get_rank())
    return mesh, DataLoader(dataset, sampler=sampler, batch_size=8)


def generation_mesh(tp):
    world = dist.get_world_size()
    return init_device_mesh("cuda", (world // tp, tp), mesh_dim_names=("dp", "tp"))
