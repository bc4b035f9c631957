# Right: update takes the parameters, not samples
import torch
import torch.distributed as dist
from torch import nn


class Teacher(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.register_buffer("mean", torch.zeros(d))
        dist.broadcast(self.mean, 0)

    @torch.no_grad()
    def update(self, weight):
        self.mean += 0.01 * (weight.mean(dim=0) - self.mean)


def step(model, teacher, x, optimizer):
    model(x).mean().backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
    optimizer.step()
    teacher.update(model.weight)
