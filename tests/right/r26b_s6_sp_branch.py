# RIGHT: the reported line is the branch of sp_size <= 1, the other branch uses fsdp_size
import torch
import torch.distributed as dist


def train_step(model, batch, ps, optimizer):
    tokens = (batch["labels"] != -100).sum()
    total = tokens.clone()
    dist.all_reduce(total, group=ps.fsdp_group)
    loss = model(**batch).loss
    if ps.sp_size > 1:
        loss = loss * tokens / total * ps.fsdp_size
    else:
        loss = loss * tokens / total * ps.dp_size
    loss.backward()
    optimizer.step()
