# RIGHT: dp = replicas x shards; where dp and replicas differ in size there are shards, and gradients differ over the shards alone
from torch.amp import GradScaler
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler


def scaler(gangs):
    if gangs.dp.size != gangs.rdp.size:
        return ShardedGradScaler(process_group=gangs.sdp.as_process_group())
    return GradScaler("cuda")
