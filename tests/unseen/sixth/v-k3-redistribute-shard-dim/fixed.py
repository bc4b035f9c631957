"""Sequence-parallel output of a block: (B, L, D)."""
from torch.distributed.tensor import DTensor, Replicate, Shard


def to_sequence_shards(x, tp_mesh):
    # x: (B, L, D), the same on all ranks
    x = DTensor.from_local(x, tp_mesh, [Replicate()], run_check=False)
    return x.redistribute(tp_mesh, [Shard(1)]).to_local()


def forward(block, x, tp_mesh):
    # block takes sequence shards (B, L/tp, D)
    return block(to_sequence_shards(x, tp_mesh))
