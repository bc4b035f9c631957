# only torch.unique of all values is taken: order does not matter
import torch
import torch.distributed as dist


def used_ids(ids, group):
    out = torch.empty(ids.shape[0], ids.shape[1] * dist.get_world_size(group), dtype=ids.dtype, device=ids.device)
    dist.all_gather_into_tensor(out, ids.contiguous(), group=group)
    return torch.unique(out)
