# RIGHT: the gradients are multiplied by sp_size before the step
import torch
import torch.distributed as dist


def train_step(model, batch, ps, optimizer):
    # ps.fsdp_size == ps.dp_size * ps.sp_size
    tokens = (batch["labels"] != -100).sum()
    total = tokens.clone()
    dist.all_reduce(total, group=ps.fsdp_group)
    loss = model(**batch).loss
    loss = loss * tokens / total * ps.dp_size
    loss.backward()
    for p in model.parameters():
        if p.grad is not None:
            p.grad.mul_(ps.sp_size)
    optimizer.step()
