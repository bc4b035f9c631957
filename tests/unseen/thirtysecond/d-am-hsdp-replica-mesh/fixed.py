"""(H)SDP for a model with context parallelism.
NVIDIA-NeMo/Automodel #3135, "fix(moe): preserve HSDP replica gradient synchronization".
"""
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def build_mesh(dp_replicate, dp_shard, cp, tp) -> DeviceMesh:
    mesh = init_device_mesh(
        "cuda", (dp_replicate, dp_shard, cp, tp), mesh_dim_names=("dp_replicate", "dp_shard", "cp", "tp")
    )
    mesh[("dp_replicate", "dp_shard")]._flatten("dp")
    mesh[("dp_shard", "cp")]._flatten("dp_shard_cp")
    return mesh


def apply_fsdp(model, fsdp_mesh: DeviceMesh, mp_policy: MixedPrecisionPolicy):
    for block in model.layers:
        fully_shard(block, mesh=fsdp_mesh, mp_policy=mp_policy)
    fully_shard(model, mesh=fsdp_mesh, mp_policy=mp_policy)


def parallelize_model(model, world_mesh: DeviceMesh, mp_policy: MixedPrecisionPolicy):
    dp_replicate_enabled = world_mesh["dp_replicate"].size() > 1
    fsdp_mesh = world_mesh["dp_shard_cp"]
    if dp_replicate_enabled:
        fsdp_mesh = world_mesh[("dp_replicate", "dp_shard_cp")]
    if fsdp_mesh.size() > 1 or dp_replicate_enabled:
        apply_fsdp(model, fsdp_mesh, mp_policy)
    return model


def data_rank(world_mesh: DeviceMesh):
    """The loader gives each (dp_replicate, dp_shard) rank its own samples."""
    return world_mesh["dp"].get_local_rank(), world_mesh["dp"].size()
