"""Gradient accumulation: the mean of each micro-batch is divided by their number, and gradients are averaged once."""

import torch
import torch.distributed as dist
import torch.nn.functional as F


def train(model, loader, optimizer, dp_group, accumulation_steps):
    for step, (inputs, labels) in enumerate(loader):
        loss = F.cross_entropy(model(inputs), labels) / accumulation_steps
        loss.backward()
        if (step + 1) % accumulation_steps == 0:
            for param in model.parameters():
                dist.all_reduce(param.grad, op=dist.ReduceOp.AVG, group=dp_group)
            optimizer.step()
            optimizer.zero_grad()
