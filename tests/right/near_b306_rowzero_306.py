import torch.distributed as dist


def in_first_row(x, mesh, mesh_dim):
    """Only the ranks of the row that holds rank 0 take part."""
    group = mesh.get_group(mesh_dim)
    if 0 in dist.get_process_group_ranks(group):
        dist.broadcast(x, src=0, group=mesh.get_group(mesh_dim))
    return x
