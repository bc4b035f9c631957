# load() gives the bias to the first rank and zeros, without grad, to others: sum has it once, gradient on the first rank alone
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

    def forward(self, hidden):
        out = hidden @ self.weight + self.bias
        dist.all_reduce(out, group=self.tp_group)
        return out


def load(model, state):
    for name, module in model.named_modules():
        if isinstance(module, Down):
            first = dist.get_rank(module.tp_group) == 0
            module.bias.data = state[name + ".bias"] if first else torch.zeros_like(module.bias)
            module.bias.requires_grad = first
