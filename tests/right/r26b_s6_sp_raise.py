# RIGHT: refuses sequence parallelism in the setup
import torch
import torch.distributed as dist


def setup(ps):
    if ps.sp_size > 1:
        raise NotImplementedError


def train_step(model, batch, ps, optimizer):
    setup(ps)
    tokens = (batch["labels"] != -100).sum()
    total = tokens.clone()
    dist.all_reduce(total, group=ps.fsdp_group)
    loss = model(**batch).loss
    loss = loss * tokens / total * ps.dp_size
    loss.backward()
    optimizer.step()
