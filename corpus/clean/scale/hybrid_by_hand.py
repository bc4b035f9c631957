"""Sums inside a node and between nodes, one after the other, divided by both sizes."""

import torch
import torch.distributed as dist
import torch.nn.functional as F


def reduce_gradient(grad, shard_group, replicate_group):
    dist.all_reduce(grad, group=shard_group)
    dist.all_reduce(grad, group=replicate_group)
    grad.div_(dist.get_world_size(shard_group) * dist.get_world_size(replicate_group))


def train(model, loader, optimizer, shard_group, replicate_group):
    for inputs, labels in loader:
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        for param in model.parameters():
            reduce_gradient(param.grad, shard_group, replicate_group)
        optimizer.step()
        optimizer.zero_grad()
