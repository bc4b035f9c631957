import torch
import torch.distributed as dist
from torch import nn


class GatedHeads(nn.Module):
    def __init__(self, num_heads, group, eps=1e-6):
        super().__init__()
        self.num_heads = num_heads
        self.eps = eps
        self.gain = nn.Parameter(torch.ones(num_heads // dist.get_world_size(group)))

    def forward(self, x, logits):
        mean = logits.sigmoid().sum(-1, keepdim=True) / self.num_heads
        return x * self.gain * torch.sqrt(mean + self.eps)
