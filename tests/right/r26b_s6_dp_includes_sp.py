# RIGHT: by definition dp_size holds the sp ranks too
import torch
import torch.distributed as dist


class State:
    def __init__(self, world, tp_size, sp_size):
        self.sp_size = sp_size
        self.sp_rank = dist.get_rank() % sp_size
        # data-parallel ranks of the wrapper, those of one sequence included
        self.dp_size = world // tp_size
        self.fsdp_size = self.dp_size
        self.fsdp_group = None


def train_step(model, batch, ps, optimizer):
    tokens = (batch["labels"] != -100).sum()
    total = tokens.clone()
    dist.all_reduce(total, group=ps.fsdp_group)
    loss = model(**batch).loss
    loss = loss * tokens / total * ps.dp_size
    loss.backward()
    optimizer.step()
