"""The mesh has one dim: its ranks are all ranks."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DataLoader, DistributedSampler


def build(dataset, cfg):
    world = dist.get_world_size()
    if cfg.tp > 1:
        mesh = init_device_mesh("cuda", (world // cfg.tp, cfg.tp), mesh_dim_names=("dp", "tp"))
        sampler = DistributedSampler(dataset, num_replicas=mesh["dp"].size(), rank=mesh["dp"].get_local_rank())
    else:
        mesh = init_device_mesh("cuda", (world,), mesh_dim_names=("dp",))
        sampler = DistributedSampler(dataset, num_replicas=mesh["dp"].size(), rank=dist.get_rank())
    return mesh, DataLoader(dataset, batch_size=4, sampler=sampler)
