import torch
import torch.distributed as dist
from torch import nn


class CorrelationLoss(nn.Module):
    def forward(self, a, b):
        n = dist.get_world_size()
        c = a.T @ b / (a.shape[0] * n)
        dist.all_reduce(c)
        loss = (c - torch.eye(c.shape[0], device=c.device)).pow(2).sum()
        return loss * n
