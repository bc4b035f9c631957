# RIGHT: world = replicas x shards: gradients differ over the shards alone, whose group is in a variable
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler


def scaler(groups):
    if groups.world.size != groups.replicas.size:
        pg = groups.all_shards.as_process_group()
        return ShardedGradScaler(process_group=pg)
    return None
