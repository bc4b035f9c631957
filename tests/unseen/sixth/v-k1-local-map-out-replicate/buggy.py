"""Row-parallel experts as a local_map region."""
import torch
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.experimental import local_map


def rowwise(x, w):
    return torch.matmul(x, w)


def make(device_mesh):
    return local_map(
        rowwise,
        out_placements=[Replicate()],  # BUG: each rank has one summand
        in_placements=([Shard(1)], [Shard(0)]),
        device_mesh=device_mesh,
    )
