# right: the range is one of years, the table is whole: the rank only says who prints
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class YearEmbedding(nn.Module):
    def __init__(self, first_year, last_year, width):
        super().__init__()
        self.start = first_year
        self.end = last_year + 1
        self.weight = nn.Parameter(torch.randn(self.end - self.start, width) * 0.02)
        if dist.is_initialized() and dist.get_rank() == 0:
            print(f"years {self.start}..{self.end}")

    def forward(self, years):
        outside = (years < self.start) | (years >= self.end)
        local = (years - self.start).masked_fill(outside, 0)
        rows = F.embedding(local, self.weight)
        rows[outside] = 0.0
        return rows
