"""Load a full state dict, held by rank 0, into an FSDP2 model (1-D or HSDP mesh).

NovaSky-AI/SkyRL b705dde74dfb, skyrl_train/distributed/fsdp_utils.py
"""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_tensor


def create_device_mesh(world_size, fsdp_size):
    if fsdp_size < 0 or fsdp_size >= world_size:
        return init_device_mesh("cuda", mesh_shape=(world_size,), mesh_dim_names=["fsdp"])
    return init_device_mesh(
        "cuda", mesh_shape=(world_size // fsdp_size, fsdp_size), mesh_dim_names=["ddp", "fsdp"]
    )


def fsdp2_load_full_state_dict(model: torch.nn.Module, full_sd: dict):
    """`full_sd` is the full state dict on rank 0 and empty on the other ranks."""
    meta_sharded_sd = model.state_dict()
    sharded_sd = {}
    for param_name, sharded_param in meta_sharded_sd.items():
        mesh = sharded_param.device_mesh
        if dist.get_rank() == 0:
            full_tensor = full_sd[param_name].detach().cuda()
        else:
            full_tensor = torch.empty(sharded_param.size(), device="cuda", dtype=sharded_param.dtype)
        dist.broadcast(full_tensor, src=0)
        sharded_sd[param_name] = distribute_tensor(full_tensor, mesh, sharded_param.placements)

    # we set `assign=True` because our params can be on meta device
    model.load_state_dict(sharded_sd, assign=True)
    return model


def build(model, full_sd, fsdp_size):
    mesh = create_device_mesh(dist.get_world_size(), fsdp_size)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return fsdp2_load_full_state_dict(model, full_sd)
