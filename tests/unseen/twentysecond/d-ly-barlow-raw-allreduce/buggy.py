"""Barlow Twins loss over the batch of all ranks (lightly-ai/lightly#1977)."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def barlow_twins_loss(z_a, z_b, lambda_param=5e-3):
    z_a = (z_a - z_a.mean(0)) / z_a.std(0)
    z_b = (z_b - z_b.mean(0)) / z_b.std(0)
    c = z_a.t() @ z_b / z_a.size(0)
    c = c / dist.get_world_size()
    dist.all_reduce(c)  # BUG: the backward does not sum, the gradient is 1/world of the true one
    on_diag = (torch.diagonal(c) - 1).pow(2).sum()
    off_diag = c.pow(2).sum() - torch.diagonal(c).pow(2).sum()
    return on_diag + lambda_param * off_diag


def train_step(model: DDP, x_a, x_b, optimizer):
    # x_a, x_b: two views of this rank's samples; DDP averages the gradients
    optimizer.zero_grad()
    barlow_twins_loss(model(x_a), model(x_b)).backward()
    optimizer.step()
