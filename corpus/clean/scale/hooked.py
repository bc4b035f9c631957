"""Hooks average each gradient as soon as it is there."""

import torch
import torch.distributed as dist
import torch.nn.functional as F


def register(model, group):
    size = group.size()

    def average(grad):
        dist.all_reduce(grad, group=group)
        return grad / size

    for param in model.parameters():
        param.register_hook(average)


def train(model, loader, optimizer, dp_group):
    register(model, dp_group)
    for inputs, labels in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
