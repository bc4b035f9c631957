import torch
import torch.distributed as dist
from torch import nn

from kernels import fast_norm


class Block(nn.Module):
    def __init__(self, size, attention, fast=False, sequence_parallel=False):
        super().__init__()
        self.attention = attention
        if fast:
            self.norm = fast_norm(size, sequence_parallel=sequence_parallel)
        else:
            self.norm = nn.LayerNorm(size)

    def forward(self, x):
        return x + self.attention(self.norm(x))


def build(size, attention, config):
    if config.sequence_parallel:
        return Block(size, attention, fast=True, sequence_parallel=True)
    return Block(size, attention, fast=config.fast)


def sum_marked(model, group):
    for p in model.parameters():
        if getattr(p, "sequence_parallel", False):
            dist.all_reduce(p.grad, group=group)
