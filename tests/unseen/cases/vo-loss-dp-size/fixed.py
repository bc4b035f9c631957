"""Token-weighted loss with Ulysses sequence parallelism."""
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from veomni.distributed.parallel_state import get_parallel_state


def build(model):
    return fully_shard(model, mesh=get_parallel_state().fsdp_mesh)  # data x sequence ranks


def train_step(model, micro_batches, optimizer):
    ps = get_parallel_state()
    length_in_batch = torch.tensor(sum((mb["labels"] != -100).sum().item() for mb in micro_batches), device="cuda")
    dist.all_reduce(length_in_batch, op=dist.ReduceOp.SUM, group=ps.fsdp_group)
    for mb in micro_batches:
        length = (mb["labels"] != -100).sum()
        loss = model(**mb).loss
        loss = loss * length / length_in_batch * ps.fsdp_size
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
