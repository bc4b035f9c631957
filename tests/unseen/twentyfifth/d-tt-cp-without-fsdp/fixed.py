# torchtitan 40a0873b3 (PR #685): with context parallelism but no data-parallel sharding the model is not
# wrapped by FSDP, so the gradients of the sequence shards are never reduced over cp.
import torch
import torch.nn as nn
from torch.distributed._composable.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed._composable.replicate import replicate
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from torchtitan.config_manager import JobConfig, TORCH_DTYPE_MAP


def build_mesh(parallel_dims, device_type) -> DeviceMesh:
    dims, names = [], []
    for d, name in zip(
        [parallel_dims.pp, parallel_dims.dp_replicate, parallel_dims.dp_shard, parallel_dims.cp, parallel_dims.tp],
        ["pp", "dp_replicate", "dp_shard", "cp", "tp"],
    ):
        if d > 1:
            dims.append(d)
            names.append(name)
    mesh = init_device_mesh(device_type, tuple(dims), mesh_dim_names=tuple(names))
    # Mesh for param sharding
    dp_shard_cp = tuple(n for n in ("dp_shard", "cp") if n in names)
    if dp_shard_cp:
        mesh[dp_shard_cp]._flatten(mesh_dim_name="dp_shard_cp")
    return mesh


def parallelize_llama(model: nn.Module, world_mesh: DeviceMesh, parallel_dims, job_config: JobConfig):
    """The caller runs forward and backward inside context_parallel(world_mesh["cp"], ...)."""
    if parallel_dims.dp_shard_enabled or parallel_dims.cp_enabled:
        if parallel_dims.dp_replicate_enabled:
            dp_mesh_dim_names = ("dp_replicate", "dp_shard_cp")
        else:
            dp_mesh_dim_names = ("dp_shard_cp",)
        apply_fsdp(
            model,
            world_mesh[dp_mesh_dim_names],
            param_dtype=TORCH_DTYPE_MAP[job_config.training.mixed_precision_param],
            reduce_dtype=TORCH_DTYPE_MAP[job_config.training.mixed_precision_reduce],
        )
    elif parallel_dims.dp_replicate_enabled:
        replicate(model, device_mesh=world_mesh["dp_replicate"], bucket_cap_mb=100)
    return model


def apply_fsdp(model: nn.Module, dp_mesh: DeviceMesh, param_dtype: torch.dtype, reduce_dtype: torch.dtype):
    mp_policy = MixedPrecisionPolicy(param_dtype=param_dtype, reduce_dtype=reduce_dtype)
    for transformer_block in model.layers.values():
        fully_shard(transformer_block, mesh=dp_mesh, mp_policy=mp_policy)
    fully_shard(model, mesh=dp_mesh, mp_policy=mp_policy)
