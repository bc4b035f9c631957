"""Data-parallel wrappers of a model part.
pytorch/torchtitan #685, "apply fsdp to model when CP is enabled without DP for correct loss".
"""
import torch.nn as nn
from torch.distributed._composable.replicate import replicate
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


class ParallelDims:
    def __init__(self, dp_replicate, dp_shard, cp, tp):
        self.dp_replicate, self.dp_shard, self.cp, self.tp = dp_replicate, dp_shard, cp, tp
        self.dp_replicate_enabled, self.dp_shard_enabled = dp_replicate > 1, dp_shard > 1
        self.cp_enabled, self.tp_enabled = cp > 1, tp > 1

    def build_mesh(self, device_type="cuda") -> DeviceMesh:
        names = ("dp_replicate", "dp_shard", "cp", "tp")
        mesh = init_device_mesh(
            device_type, (self.dp_replicate, self.dp_shard, self.cp, self.tp), mesh_dim_names=names
        )
        mesh[("dp_replicate", "dp_shard")]._flatten("dp")  # data loading
        mesh[("dp_shard", "cp")]._flatten("dp_shard_cp")  # parameter sharding
        mesh[("dp_replicate", "dp_shard", "cp")]._flatten("dp_cp")  # loss
        return mesh


def apply_fsdp(model: nn.Module, dp_mesh: DeviceMesh, mp_policy: MixedPrecisionPolicy):
    for layer in model.layers.values():
        fully_shard(layer, mesh=dp_mesh, mp_policy=mp_policy)
    fully_shard(model, mesh=dp_mesh, mp_policy=mp_policy)


def parallelize_llama(model, world_mesh: DeviceMesh, parallel_dims: ParallelDims, mp_policy):
    if parallel_dims.dp_shard_enabled:  # BUG
        names = ("dp_replicate", "dp_shard_cp") if parallel_dims.dp_replicate_enabled else ("dp_shard_cp",)
        apply_fsdp(model, world_mesh[names], mp_policy)
    elif parallel_dims.dp_replicate_enabled:
        replicate(model, device_mesh=world_mesh["dp_replicate"], bucket_cap_mb=100)
    return model
