import torch
import torch.distributed as dist
import torch.nn as nn


class Shell(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)

    def average_gradients(self):
        for p in self.module.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)


def overfit_one_batch(net, x, y, loss_fn, steps):
    """For debugging: one process, no process group."""
    model = Shell(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
    return loss.item()
