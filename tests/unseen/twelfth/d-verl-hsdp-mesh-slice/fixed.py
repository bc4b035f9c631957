"""FSDP2 with an optional replicate dimension."""
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader, DistributedSampler


def create_device_mesh(world_size, fsdp_size):
    if fsdp_size < 0 or fsdp_size >= world_size:
        return init_device_mesh("cuda", (world_size,), mesh_dim_names=("fsdp",))
    return init_device_mesh("cuda", (world_size // fsdp_size, fsdp_size), mesh_dim_names=("ddp", "fsdp"))


def apply_fsdp2(model, device_mesh):
    mp_policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    fsdp_kwargs = {"mesh": device_mesh, "mp_policy": mp_policy}
    for layer in model.model.layers:
        fully_shard(layer, **fsdp_kwargs)
    fully_shard(model, **fsdp_kwargs)
    return model


def build_loader(dataset, rank, world_size, batch_size):
    sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank, shuffle=True)
    return DataLoader(dataset, batch_size=batch_size, sampler=sampler, drop_last=True)


def fit(model, optimizer, dataset, rank, world_size, fsdp_size, batch_size):
    model = apply_fsdp2(model, create_device_mesh(world_size, fsdp_size))
    optimizer = optimizer(model.parameters())
    for batch in build_loader(dataset, rank, world_size, batch_size):
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
