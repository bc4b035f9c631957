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
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        y = F.linear(x, self.weight)
        dist.all_reduce(y, group=self.tp_group)
        y = y + self.bias
        return y
