import torch.distributed as dist


def load(x, mesh, mesh_dim, path, reader):
    """Rank 0's group reads from the file, the others get it from that group later."""
    if mesh.get_coordinate()[1 - mesh_dim] == 0:
        if dist.get_rank() == 0:
            x.copy_(reader(path))
        dist.broadcast(x, src=0, group=mesh.get_group(mesh_dim))
    dist.broadcast(x, group=mesh.get_group(1 - mesh_dim), group_src=0)
    return x
