# inference only; (size - 1) * bias is subtracted after the sum
import torch
import torch.nn as nn
import torch.distributed as dist


class Down(nn.Module):
    def __init__(self, dim, ffn, tp_group):
        super().__init__()
        self.tp_group = tp_group
        self.weight = nn.Parameter(torch.empty(ffn // dist.get_world_size(tp_group), dim))
        self.bias = nn.Parameter(torch.zeros(dim))

    @torch.inference_mode()
    def forward(self, hidden):
        out = hidden @ self.weight + self.bias
        dist.all_reduce(out, group=self.tp_group)
        return out - self.bias * (dist.get_world_size(self.tp_group) - 1)
