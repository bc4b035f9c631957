"""Gradient reduction at the start of a step."""
import torch
import torch.distributed as dist


def train_step(model, batch, loss_fn, optimizer, dp_group):
    optimizer.zero_grad()
    loss = loss_fn(model(batch["x"]), batch["y"])
    for p in model.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=dp_group)  # BUG: before the backward pass
    loss.backward()
    optimizer.step()
