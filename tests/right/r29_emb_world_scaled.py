# right: the range is one of distances, the table is whole: the group is for statistics
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class RelativeBias(nn.Module):
    """Distances out of [-reach, reach) have no bias. The group is for statistics of use."""

    def __init__(self, reach, heads, group=None):
        super().__init__()
        self.group = group
        self.world, self.rank = dist.get_world_size(group), dist.get_rank(group)
        self.start, self.end = -reach, reach
        self.table = nn.Parameter(torch.zeros(2 * reach, heads))
        self.register_buffer("used", torch.zeros(1))

    def forward(self, distance):
        outside = (distance < self.start) | (distance >= self.end)
        bias = F.embedding((distance - self.start).masked_fill(outside, 0), self.table)
        bias[outside] = 0.0
        self.used += (~outside).float().mean().detach()
        return bias.permute(2, 0, 1)

    def statistics(self):
        u = self.used / self.world
        dist.all_reduce(u, group=self.group)
        return u.item()
