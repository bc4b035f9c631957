"""Positions of a part of the sequence; the rank among all ranks is for the log."""
import logging

import torch
import torch.distributed as dist


class RingAttention(torch.nn.Module):
    def __init__(self, dim, cp_group):
        super().__init__()
        self.qkv = torch.nn.Linear(dim, 3 * dim)
        self.cp_group = cp_group

    def forward(self, x, attend):
        length = x.size(1)
        positions = torch.arange(length, device=x.device) + dist.get_rank(self.cp_group) * length
        logging.debug("rank %d starts at %d", dist.get_rank(), int(positions[0]))
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return attend(q, k, v, positions, group=self.cp_group)
