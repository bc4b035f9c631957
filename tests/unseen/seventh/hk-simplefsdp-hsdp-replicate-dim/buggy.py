"""Parametrization that gathers HSDP parameters on access."""
import torch
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor


def build_mesh(replicas, shards):
    return init_device_mesh("cuda", (replicas, shards), mesh_dim_names=("dp_replicate", "dp_shard"))


class ReplicateComputation(nn.Module):
    """Stored as (Replicate, Shard(0)); every rank computes on its own batch."""

    def __init__(self, mesh):
        super().__init__()
        self.mesh = mesh
        self.compute_placements = [Replicate(), Replicate()]
        self.grad_placements = [Replicate(), Partial(reduce_op="avg")]  # BUG

    def forward(self, x):
        full = x.redistribute(placements=self.compute_placements)
        return full.to_local(grad_placements=self.grad_placements)


def data_parallel(model, mesh):
    for mod in list(model.modules()):
        for name, p in list(mod.named_parameters(recurse=False)):
            sharded = distribute_tensor(p.data, mesh, [Replicate(), Shard(0)])
            mod.register_parameter(name, nn.Parameter(sharded, requires_grad=p.requires_grad))
            nn.utils.parametrize.register_parametrization(
                mod, name, ReplicateComputation(mesh), unsafe=True
            )
    return model
