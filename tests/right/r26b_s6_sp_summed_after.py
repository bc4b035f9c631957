# RIGHT: gradients summed over sp by hand, fsdp averages over its own dim of dp only, comment says so
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


def shard(model, ps):
    fully_shard(model, mesh=ps.dp_mesh)


def train_step(model, batch, ps, optimizer):
    tokens = (batch["labels"] != -100).sum()
    total = tokens.clone()
    dist.all_reduce(total, group=ps.fsdp_group)
    loss = model(**batch).loss
    loss = loss * tokens / total * ps.dp_size
    loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad.to_local(), group=ps.sp_group)
    optimizer.step()
