# RIGHT: asserts sp_size == 1
import torch
import torch.distributed as dist


def train_step(model, batch, ps, optimizer):
    assert ps.sp_size == 1, "packing does not go with sequence parallelism"
    tokens = (batch["labels"] != -100).sum()
    total = tokens.clone()
    dist.all_reduce(total, group=ps.fsdp_group)
    loss = model(**batch).loss
    loss = loss * tokens / total * ps.dp_size
    loss.backward()
    optimizer.step()
