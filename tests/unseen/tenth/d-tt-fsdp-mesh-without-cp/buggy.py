"""Apply data parallelism to Llama (torchtitan parallelize_llama)."""
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def build_mesh(parallel_dims):
    mesh = init_device_mesh(
        "cuda",
        (parallel_dims.dp_replicate, parallel_dims.dp_shard, parallel_dims.cp, parallel_dims.tp),
        mesh_dim_names=("dp_replicate", "dp_shard", "cp", "tp"),
    )
    mesh["dp_replicate", "dp_shard"]._flatten("dp")
    mesh["dp_shard", "cp"]._flatten("dp_shard_cp")
    mesh["dp_replicate", "dp_shard", "cp"]._flatten("dp_cp")
    return mesh


def parallelize_llama(model, world_mesh, parallel_dims, job_config):
    mp_policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    # inputs and labels are split over dp_replicate x dp_shard by the loader and over cp by context_parallel()
    if parallel_dims.dp_replicate > 1:
        dp_mesh_dim_names = ("dp_replicate", "dp_shard_cp")
    else:
        dp_mesh_dim_names = ("dp_shard",)  # BUG: gradients of the cp ranks are never reduced
    fsdp_config = {"mesh": world_mesh[dp_mesh_dim_names], "mp_policy": mp_policy}
    for layer_id, transformer_block in model.layers.items():
        fully_shard(
            transformer_block,
            **fsdp_config,
            reshard_after_forward=int(layer_id) < len(model.layers) - 1,
        )
    fully_shard(model, **fsdp_config)
    return model
