"""Data parallelism by hand: gradients are averaged after the backward pass."""

import torch
import torch.distributed as dist
import torch.nn.functional as F


def average_gradients(model):
    size = float(dist.get_world_size())
    for parameter in model.parameters():
        if parameter.grad is None:
            continue
        dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
        parameter.grad /= size


def train(model, loader, epochs):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    for epoch in range(epochs):
        total = 0.0
        for data, target in loader:
            optimizer.zero_grad()
            loss = F.nll_loss(model(data), target)
            total += loss.item()
            loss.backward()
            average_gradients(model)
            optimizer.step()
        print(f"rank {dist.get_rank()}, epoch {epoch}: {total / len(loader)}")
