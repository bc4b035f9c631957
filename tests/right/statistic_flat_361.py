# Right: the in-place sum gives each rank its own part of the gradient, and a flat buffer of gradients is summed, and nothing takes a mean.
import torch
import torch.distributed as dist
import torch.nn as nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


class CorrelationLoss(nn.Module):
    def forward(self, a, b):
        c = a.T @ b / a.shape[0] / dist.get_world_size()
        dist.all_reduce(c)
        return (c - torch.eye(c.shape[0], device=c.device)).pow(2).sum()


def train(model, loader, optimizer):
    criterion = CorrelationLoss()
    for x, y in loader:
        criterion(model(x), model(y)).backward()
        grads = [p.grad for p in model.parameters()]
        flat = _flatten_dense_tensors(grads)
        dist.all_reduce(flat)
        for g, s in zip(grads, _unflatten_dense_tensors(flat, grads)):
            g.copy_(s)
        optimizer.step()
        optimizer.zero_grad()
