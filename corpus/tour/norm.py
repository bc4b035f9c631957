"""A value that is reduced twice counts every rank twice."""

# spmd: mesh dense = dp, tp
import spmd_types as spmd
import torch
from torch.distributed.device_mesh import init_device_mesh

mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))
tp = mesh.get_group("tp")


# spmd: x: {tp: S(-1)} -> {tp: R}
def sharded_rms_norm(x, hidden: int, eps: float):
    local = x.pow(2).sum(dim=-1, keepdim=True)
    total = spmd.all_reduce(local, tp, src=spmd.P, dst=spmd.R)
    mean = spmd.all_reduce(total, tp, src=spmd.P, dst=spmd.R) / hidden
    return torch.rsqrt(mean + eps)
