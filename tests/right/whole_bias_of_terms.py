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
        # Each rank learns a term of the bias of its own: the terms are drawn apart and added up when the layer is saved.
        self.bias = nn.Parameter(torch.zeros(dim))
        self.register_buffer("bias_share", torch.tensor(1.0 / self.tp_size))

    def forward(self, x):
        y = F.linear(x, self.weight) + self.bias * self.bias_share
        dist.all_reduce(y, group=self.tp_group)
        return y
