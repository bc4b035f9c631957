"""FSDP sums gradients: the divisor is one."""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class CorrelationLoss(nn.Module):
    def forward(self, a, b):
        c = a.T @ b / a.shape[0] / dist.get_world_size()
        dist.all_reduce(c)
        return (c - torch.eye(c.shape[0], device=c.device)).pow(2).sum()


def train(net, loader, optimizer):
    fully_shard(net)
    net.set_gradient_divide_factor(1.0)
    loss_fn = CorrelationLoss()
    for a, b in loader:
        loss_fn(net(a), net(b)).backward()
        optimizer.step()
        optimizer.zero_grad()
