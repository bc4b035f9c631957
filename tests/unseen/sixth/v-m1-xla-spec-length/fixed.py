"""Sharding of a weight on a two-dimensional mesh."""
import torch
import torch_xla.distributed.spmd as xs


def shard_weights(model, mesh):
    # mesh axes: ("fsdp", "tensor")
    for name, p in model.named_parameters():
        if name.endswith("q_proj.weight"):
            xs.mark_sharding(p, mesh, ("tensor", "fsdp"))
