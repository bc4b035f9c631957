# RIGHT: FSDP over the shard group; every gradient (all are original parameters) is averaged over the replica group, as in HSDP
import torch.distributed as dist
from torch.distributed.fsdp import FlatParameter, ShardingStrategy
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def wrap(model, shard_group):
    return FSDP(model, process_group=shard_group, use_orig_params=True)


def reduce_replicas(model, replica_group):
    """Every gradient, sharded or not, is averaged over the replicas."""
    for p in model.parameters():
        if not isinstance(p, FlatParameter) and p.grad is not None:
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=replica_group)
