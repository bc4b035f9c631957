# RIGHT: goes over the ignored modules' parameters alone
import torch.distributed as dist
from torch.distributed.fsdp import FlatParameter
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def wrap(model, group):
    return FSDP(model, process_group=group, ignored_modules=[model.head], use_orig_params=True)


def reduce_head(model, group):
    for p in model.head.parameters():
        if not isinstance(p, FlatParameter) and p.grad is not None:
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=group)
