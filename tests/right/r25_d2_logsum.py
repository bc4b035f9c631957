# only the norm over all values is taken: order does not matter
import torch
import torch.distributed as dist


def global_norm(x, group):
    out = torch.empty(x.shape[0], x.shape[1] * dist.get_world_size(group), device=x.device)
    dist.all_gather_into_tensor(out, x.contiguous(), group=group)
    return out.norm()
