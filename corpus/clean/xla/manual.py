"""A kernel on shards: manual sharding is entered and left around it, in a mesh of several slices."""

import torch
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
import torch_xla.distributed.spmd as xs
from torch_xla.distributed.spmd import HybridMesh

xr.use_spmd()
mesh = HybridMesh(ici_mesh_shape=(1, 4, 1), dcn_mesh_shape=(2, 1, 1), axis_names=("data", "fsdp", "tensor"))
xs.set_global_mesh(mesh)


def kernel(q, spec=(("data", "fsdp"), None)):
    full = q.shape
    q = xs.enable_manual_sharding(q, spec, mesh=xs.get_global_mesh()).global_tensor
    out = q * q.sigmoid()
    return xs.disable_manual_sharding(out, spec, full, mesh=xs.get_global_mesh()).global_tensor


q = torch.ones(32, 128).to(xm.xla_device())
xs.mark_sharding(q, mesh, (("data", "fsdp"), "tensor"))
out = kernel(q.clone())
other = xs.annotate_custom_sharding(q, mesh, ("data", None))
seen = xs.mark_sharding_with_gradients(q, mesh, ("data", None))
