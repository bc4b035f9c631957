"""DDP with a communication hook that sums."""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel


class CorrelationLoss(nn.Module):
    def forward(self, a, b):
        c = a.T @ b / a.shape[0] / dist.get_world_size()
        dist.all_reduce(c)
        return (c - torch.eye(c.shape[0], device=c.device)).pow(2).sum()


def sum_hook(state, bucket):
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0])


def train(net, loader, optimizer):
    model = DistributedDataParallel(net)
    model.register_comm_hook(None, sum_hook)
    loss_fn = CorrelationLoss()
    for a, b in loader:
        loss_fn(model(a), model(b)).backward()
        optimizer.step()
        optimizer.zero_grad()
