import torch
from torch.distributed.tensor import DTensor, Shard


def batch_sharded(x, dp_mesh):
    # x: (batch, sequence, hidden)
    return DTensor.from_local(x, dp_mesh, [Shard(0)])
