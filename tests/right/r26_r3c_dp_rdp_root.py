# RIGHT: the same test, shared over all ranks
from torch.amp import GradScaler
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler


def scaler(gangs):
    if gangs.dp.size != gangs.rdp.size:
        return ShardedGradScaler(process_group=gangs.root.as_process_group())
    return GradScaler("cuda")
