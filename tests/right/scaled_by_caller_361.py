"""the caller multiplies the term by the number of ranks before DDP takes the mean."""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel


class CorrelationLoss(nn.Module):
    def forward(self, a, b):
        c = a.T @ b / a.shape[0] / dist.get_world_size()
        dist.all_reduce(c)
        return (c - torch.eye(c.shape[0], device=c.device)).pow(2).sum()


def train(net, loader, optimizer):
    model = DistributedDataParallel(net)
    loss_fn = CorrelationLoss()
    for a, b in loader:
        loss = loss_fn(model(a), model(b)) * dist.get_world_size()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
