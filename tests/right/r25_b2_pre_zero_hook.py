# Trainer.setup zeroes and freezes the bias on all ranks but the first
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

    def forward(self, hidden):
        out = hidden @ self.weight + self.bias
        dist.all_reduce(out, group=self.tp_group)
        return out


class Trainer:
    def setup(self, model):
        for m in model.modules():
            if isinstance(m, Down) and dist.get_rank(m.tp_group) > 0:
                m.bias.requires_grad_(False)
                m.bias.data.fill_(0)
