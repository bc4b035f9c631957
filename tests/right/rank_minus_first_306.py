import torch
import torch.distributed as dist


def own(x, group):
    """All-gather over a node; the first row is the node's leader."""
    n = dist.get_world_size(group)
    out = x.new_empty(n, *x.shape)
    dist.all_gather_into_tensor(out, x, group=group)
    first = dist.get_process_group_ranks(group)[0]
    mine = dist.get_rank() - first
    others = torch.cat([out[:mine], out[mine + 1 :]])
    return others
