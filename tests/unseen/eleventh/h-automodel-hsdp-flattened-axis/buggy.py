"""Choice of the FSDP mesh for hybrid sharding.

Reduced from NVIDIA-NeMo/Automodel 01d9ab0460 (fix(moe): preserve HSDP replica gradient
synchronization, #3135).
"""
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def build_mesh(dp_replicate, dp_shard, cp, tp):
    mesh = init_device_mesh(
        "cuda", (dp_replicate, dp_shard, cp, tp), mesh_dim_names=("dp_replicate", "dp_shard", "cp", "tp")
    )
    mesh["dp_shard", "cp"]._flatten(mesh_dim_name="dp_shard_cp")
    return mesh


def get_axis_size(mesh, name, default=None):
    """Size of a native or flattened axis."""
    try:
        return mesh[name].size()
    except KeyError:
        return default


def dp_axis_names(mesh):
    names = mesh.mesh_dim_names
    if "dp_replicate" in names and "dp_shard_cp" in names:  # BUG: flattened axes are not in mesh_dim_names
        return ("dp_replicate", "dp_shard_cp")
    return ("dp_shard_cp",)


def apply_fsdp(model, mesh):
    fsdp_mesh = mesh[dp_axis_names(mesh)]
    for block in model.layers:
        fully_shard(block, mesh=fsdp_mesh, reshard_after_forward=True)
    return fully_shard(model, mesh=fsdp_mesh)
