"""The loss is a mean over four prediction heads, and there happen to be four rounds."""
import torch
from torch.distributed.pipelining import Schedule1F1B


def loss_fn(outputs, targets):
    total = 0.0
    for i in range(4):
        total = total + torch.nn.functional.cross_entropy(outputs[..., i], targets[..., i])
    return total / 4


def run(stage, x, y, optimizer):
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=loss_fn)
    optimizer.zero_grad()
    if stage.is_first:
        schedule.step(x)
    else:
        schedule.step(target=y)
    optimizer.step()
