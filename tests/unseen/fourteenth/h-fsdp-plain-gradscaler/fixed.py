# Reduces FSDP training with fp16 as accelerate and lightning first offered it: the scaler looks only at the
# gradient shard of the own rank, so ranks disagree about skipping a step and about the scale.
import functools

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler


class FSDPPlugin:
    def __init__(self, min_num_params=1_000_000):
        half = torch.float16
        self.mixed_precision = MixedPrecision(param_dtype=half, reduce_dtype=half, buffer_dtype=half)
        self.policy = functools.partial(size_based_auto_wrap_policy, min_num_params=min_num_params)

    def wrap(self, model):
        return FSDP(model, auto_wrap_policy=self.policy, mixed_precision=self.mixed_precision,
                    device_id=torch.cuda.current_device())


def train(model, loader, max_norm=1.0):
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    model = FSDPPlugin().wrap(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = ShardedGradScaler()
    for batch in loader:
        optimizer.zero_grad()
        loss = model(**batch).loss
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        model.clip_grad_norm_(max_norm)
        scaler.step(optimizer)
        scaler.update()
