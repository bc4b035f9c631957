import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import all_gather_tensor


def heads(q, sp_group):
    # q: (batch, sequence, heads, dim)
    return all_gather_tensor(q, gather_dim=2, group=sp_group)
