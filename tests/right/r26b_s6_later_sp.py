# RIGHT: the factor sp is put on later in backward helper
import torch
import torch.distributed as dist


def backward(loss, ps):
    (loss * ps.sp_size).backward()


def train_step(model, batch, ps, optimizer):
    # ps.fsdp_size == ps.dp_size * ps.sp_size
    tokens = (batch["labels"] != -100).sum()
    total = tokens.clone()
    dist.all_reduce(total, group=ps.fsdp_group)
    loss = model(**batch).loss
    loss = loss * tokens / total * ps.dp_size
    backward(loss, ps)
    optimizer.step()
