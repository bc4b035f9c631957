"""Contrastive MLP on gene expression, negatives from all ranks."""
import torch
import torch.distributed as dist
from torch import nn


class GatherLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input):
        output = [torch.empty_like(input) for _ in range(dist.get_world_size())]
        dist.all_gather(output, input)
        return tuple(output)

    @staticmethod
    def backward(ctx, *grads):
        reduced = []
        for grad in grads:
            grad = grad.contiguous().clone()
            dist.all_reduce(grad, op=dist.ReduceOp.SUM)
            reduced.append(grad)
        return reduced[dist.get_rank()]


class ContrastiveMLP(nn.Module):
    def __init__(self, encoder: nn.Module, criterion: nn.Module):
        super().__init__()
        self.encoder, self.criterion = encoder, criterion

    def forward(self, x):
        z1, z2 = torch.chunk(self.encoder(x), 2)
        if dist.is_initialized():
            z1 = torch.cat(GatherLayer.apply(z1.contiguous()), dim=0)
            z2 = torch.cat(GatherLayer.apply(z2.contiguous()), dim=0)
        return self.criterion(z1, z2)
