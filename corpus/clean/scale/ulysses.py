"""Sequence parallelism over heads: parts of a sequence are counted together, gradients are averaged over data and sequence ranks."""

import torch
import torch.distributed as dist
import torch.nn.functional as F


def train(model, loader, optimizer, dp_group, sp_group):
    sp_size, dp_size = dist.get_world_size(sp_group), dist.get_world_size(dp_group)
    for tokens, labels in loader:
        loss_sum = F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten(), reduction="sum")
        valid = (labels != -100).sum()
        dist.all_reduce(valid, group=sp_group)
        loss = loss_sum / valid
        loss.backward()
        for param in model.parameters():
            dist.all_reduce(param.grad, group=sp_group)
            dist.all_reduce(param.grad, group=dp_group)
            param.grad.div_(dp_size)
        optimizer.step()
        optimizer.zero_grad()
