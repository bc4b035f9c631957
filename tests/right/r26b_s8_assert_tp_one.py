# RIGHT: assert tp is one
from torch.amp import GradScaler
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler


def scaler(groups):
    assert groups.tp.size == 1, "fp16 goes with data parallelism only"
    if groups.world.size != groups.replicas.size:
        return ShardedGradScaler(process_group=groups.dp.as_process_group())
    return GradScaler("cuda")
