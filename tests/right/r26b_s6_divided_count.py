# RIGHT: the count is divided by sp_size, which gives the missing factor
import torch
import torch.distributed as dist


def train_step(model, batch, ps, optimizer):
    tokens = (batch["labels"] != -100).sum()
    total = tokens.clone()
    dist.all_reduce(total, group=ps.fsdp_group)
    total = total / ps.sp_size
    loss = model(**batch).loss
    loss = loss * tokens / total * ps.dp_size
    loss.backward()
    optimizer.step()
