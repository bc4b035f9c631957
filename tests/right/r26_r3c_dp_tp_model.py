# RIGHT: test compares dp and tp sizes for a log, the group is the union of both
from torch.amp import GradScaler
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler


def scaler(groups):
    if groups.dp.size != groups.tp.size:
        return ShardedGradScaler(process_group=groups.dp_tp.as_process_group())
    return ShardedGradScaler(process_group=groups.dp_tp.as_process_group())
