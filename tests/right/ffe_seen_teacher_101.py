import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class TPBlock(nn.Module):
    def __init__(self, d, h, group):
        super().__init__()
        n = dist.get_world_size(group)
        self.group = group
        self.up, self.down = nn.Linear(d, h // n), nn.Linear(h // n, d, bias=False)

    def forward(self, x):
        y = self.down(F.gelu(self.up(x)))
        dist.all_reduce(y, group=self.group)
        return x + y


def distill(student, t, loader, opt):
    for x in loader:
        with torch.no_grad():
            y = t(x)
        F.mse_loss(student(x), y).backward()
        for p in student.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
        opt.step()
        opt.zero_grad()
