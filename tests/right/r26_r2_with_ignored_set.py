# RIGHT: the set of ignored parameters decides; the isinstance test only guards old checkpoints' wrappers
import torch.distributed as dist
from torch.distributed.fsdp import FlatParameter
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def wrap(model, left_out, group):
    return FSDP(model, process_group=group, ignored_states=left_out, use_orig_params=True)


def reduce_left_out(model, left_out, group):
    ids = {id(p) for p in left_out}
    for p in model.parameters():
        if not isinstance(p, FlatParameter) and id(p) in ids and p.grad is not None:
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=group)
