# only a quantile over all values is taken: order does not matter
import torch
import torch.distributed as dist


def quantile(x, group, q):
    out = x.new_empty(x.shape[0], x.shape[1] * dist.get_world_size(group))
    dist.all_gather_into_tensor(out, x.contiguous(), group=group)
    return torch.quantile(out, q)
