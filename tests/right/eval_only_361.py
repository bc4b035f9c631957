"""the loss is used in validation under no_grad."""
import torch
import torch.distributed as dist
import torch.nn as nn


class CorrelationLoss(nn.Module):
    def forward(self, a, b):
        c = a.T @ b / a.shape[0] / dist.get_world_size()
        dist.all_reduce(c)
        return (c - torch.eye(c.shape[0], device=c.device)).pow(2).sum()


@torch.no_grad()
def validate(model, loader):
    loss_fn = CorrelationLoss()
    return sum(loss_fn(model(a), model(b)).item() for a, b in loader) / len(loader)
