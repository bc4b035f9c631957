import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class GatherLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = [torch.zeros_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(out, x)
        return tuple(out)

    @staticmethod
    def backward(ctx, *grads):
        all_gradients = torch.stack(grads)
        dist.all_reduce(all_gradients)
        return all_gradients[dist.get_rank()]


class NTXent(nn.Module):
    def forward(self, z_i, z_j):
        z_i = torch.cat(GatherLayer.apply(z_i), dim=0)
        z_j = torch.cat(GatherLayer.apply(z_j), dim=0)
        labels = torch.arange(z_i.shape[0])
        return F.cross_entropy(z_i @ z_j.T, labels)


class InfoNCELoss(nn.Module):
    def forward(self, z1, z2):
        parts = [torch.zeros_like(z2) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, z2)
        parts[dist.get_rank()] = z2
        keys = torch.cat(parts, dim=0)
        labels = torch.arange(z1.shape[0]) + z1.shape[0] * dist.get_rank()
        return F.cross_entropy(z1 @ keys.T, labels)


class SimLoss(nn.Module):
    def forward(self, z_a, z_b):
        z_b = z_b.detach()
        parts = [torch.zeros_like(z_b) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, z_b)
        labels = torch.arange(z_a.shape[0]) + z_a.shape[0] * dist.get_rank()
        return F.cross_entropy(z_a @ torch.cat(parts).T, labels)
