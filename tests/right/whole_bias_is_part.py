import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class Down(nn.Module):
    def __init__(self, dim, ffn, tp_group):
        super().__init__()
        self.tp_group = tp_group
        self.tp_size = dist.get_world_size(tp_group)
        self.weight = nn.Parameter(torch.empty(dim, ffn // self.tp_size))
        self.bias = nn.Parameter(torch.zeros(ffn // self.tp_size))
        self.up = nn.Parameter(torch.empty(ffn // self.tp_size, dim))

    def forward(self, x):
        # The bias of the part of the hidden width, before the second product.
        h = F.gelu(F.linear(x, self.up, self.bias))
        y = F.linear(h, self.weight)
        dist.all_reduce(y, group=self.tp_group)
        return y
