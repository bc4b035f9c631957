"""Row-parallel linear of automatic tensor parallelism."""
import torch
import torch.nn as nn
import torch.distributed as dist


class LinearAllreduce(nn.Module):
    def __init__(self, module, mp_group):
        super().__init__()
        self.mp_group = mp_group
        world, rank = dist.get_world_size(mp_group), dist.get_rank(mp_group)
        self.weight = nn.Parameter(torch.chunk(module.weight.data, world, dim=1)[rank])
        self.bias = nn.Parameter(module.bias.data) if module.bias is not None else None

    def forward(self, input):
        # input: the part of the features that belongs to this rank
        output = torch.matmul(input, self.weight.transpose(-1, -2))
        if self.mp_group is not None:
            dist.all_reduce(output, group=self.mp_group)
        if self.bias is not None:
            output = output + self.bias
        return output
