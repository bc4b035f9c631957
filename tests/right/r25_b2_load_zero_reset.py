# reset_parameters zeroes and freezes the bias on all ranks but the first
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist


class Down(nn.Module):
    def __init__(self, dim, ffn, tp_group):
        super().__init__()
        self.tp_group = tp_group
        self.weight = nn.Parameter(torch.empty(ffn // dist.get_world_size(tp_group), dim))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.normal_(self.bias)
        if dist.get_rank(self.tp_group) != 0:
            nn.init.zeros_(self.bias)
            self.bias.requires_grad = False

    def forward(self, hidden):
        out = hidden @ self.weight + self.bias
        dist.all_reduce(out, group=self.tp_group)
        return out
