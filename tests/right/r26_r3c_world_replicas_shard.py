# RIGHT: world = replicas x shards without tensor parallelism; gradients differ over shards alone
from torch.amp import GradScaler
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler


def scaler(mesh_groups):
    if mesh_groups.world.size != mesh_groups.replicate.size:
        return ShardedGradScaler(process_group=mesh_groups.shard.as_process_group())
    return GradScaler("cuda")
