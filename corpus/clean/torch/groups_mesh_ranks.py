"""Groups that every rank makes and of which it keeps one, ranks within a group, a seed that is sent over a part of a mesh."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


def groups(world, tp):
    """Every rank makes every group, and keeps its own."""
    mine = None
    for start in range(0, world, tp):
        ranks = list(range(start, start + tp))
        group = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            mine = group
    return mine


def shard(weight, tp_group):
    rank, size = dist.get_rank(tp_group), dist.get_world_size(tp_group)
    return weight.chunk(size, dim=0)[rank]


def seed(mesh):
    torch.manual_seed(1234 + mesh["dp"].get_local_rank())
    mesh_tp = mesh.get_group("tp")
    token = torch.randint(0, 2**31, (1,), device="cuda")
    dist.broadcast(token, group_src=0, group=mesh_tp)
    return int(token)


def main():
    mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))
    if dist.get_rank() == 0:
        print(mesh)
    return seed(mesh)
