"""Scatter the shards of a tensor along one mesh dimension."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh


def shard_tensor(tensor: torch.Tensor, mesh: DeviceMesh, mesh_dim: int, dim: int) -> torch.Tensor:
    """The first rank along ``mesh_dim`` decides: its chunks go to all ranks of its group."""
    group = mesh.get_group(mesh_dim)
    chunks = [c.contiguous() for c in tensor.chunk(mesh.size(mesh_dim), dim=dim)]
    out = torch.empty_like(chunks[0])
    is_source = mesh.get_local_rank(mesh_dim) == 0
    src = 0  # BUG: src is a global rank, rank 0 is in one group only
    dist.scatter(out, chunks if is_source else None, src=src, group=group)
    return out
