# RIGHT: tensor parallelism refused first
from torch.amp import GradScaler
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler


def scaler(groups):
    if groups.tp.size > 1 or groups.pp.size > 1:
        raise ValueError("fp16 goes with data parallelism only")
    if groups.world.size != groups.replicas.size:
        return ShardedGradScaler(process_group=groups.dp.as_process_group())
    return GradScaler("cuda")
