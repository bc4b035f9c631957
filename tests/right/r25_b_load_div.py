# inference only (no_grad); load() puts bias / size into the parameter, the sum has it once
import torch
import torch.nn as nn
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial, Replicate


class Down(nn.Module):
    def __init__(self, dim, ffn, tp_group):
        super().__init__()
        self.tp_group = tp_group
        self.weight = nn.Parameter(torch.empty(ffn // dist.get_world_size(tp_group), dim))
        self.bias = nn.Parameter(torch.zeros(dim))

    def load(self, state):
        self.bias.data.copy_(state["bias"] / dist.get_world_size(self.tp_group))

    @torch.no_grad()
    def forward(self, hidden):
        out = hidden @ self.weight + self.bias
        dist.all_reduce(out, group=self.tp_group)
        return out
