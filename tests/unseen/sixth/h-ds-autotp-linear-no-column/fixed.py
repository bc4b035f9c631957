"""AutoTP training: a linear cut along its output features."""
import torch
import torch.nn as nn
from deepspeed import comm as dist


class ColumnParallel(torch.autograd.Function):
    """Identity forward, all-reduce backward."""

    @staticmethod
    def forward(ctx, group, input):
        ctx.group = group
        return input

    @staticmethod
    def backward(ctx, grad_output):
        if ctx.group is None:
            return None, grad_output
        dist.all_reduce(grad_output, group=ctx.group)
        return None, grad_output


class LinearLayer(nn.Module):
    def __init__(self, module, mp_group):
        super().__init__()
        self.mp_group = mp_group
        self.tp_world_size = dist.get_world_size(mp_group)
        self.tp_index = dist.get_rank(mp_group)
        self.weight = nn.Parameter(torch.chunk(module.weight.data, self.tp_world_size, dim=0)[self.tp_index])
        self.bias = None
        if module.bias is not None:
            self.bias = nn.Parameter(torch.chunk(module.bias.data, self.tp_world_size, dim=0)[self.tp_index])

    def forward(self, input):
        # input: the same on all ranks of mp_group
        if self.mp_group is not None:
            input = ColumnParallel.apply(self.mp_group, input)
        output = torch.matmul(input, self.weight.transpose(-1, -2))
        if self.bias is not None:
            output = output + self.bias
        return output
