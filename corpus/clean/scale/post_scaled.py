"""Predivide and postdivide: half of the factor before the sum, the other half after it."""

import torch
import torch.distributed as dist
import torch.nn.functional as F


def reduce_gradients(model, group, predivide):
    world = dist.get_world_size(group)
    for param in model.parameters():
        if param.grad is None:
            continue
        param.grad.mul_(1.0 / predivide)
        dist.all_reduce(param.grad, group=group)
        param.grad.mul_(predivide / world)


def train(model, loader, optimizer, dp_group, predivide):
    for inputs, labels in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), labels).backward()
        reduce_gradients(model, dp_group, predivide)
        optimizer.step()
