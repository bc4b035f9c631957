import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class T(nn.Module):
    def __init__(self, experts, group):
        super().__init__()
        self.experts, self.group = experts, group

    def forward(self, x):
        y = torch.empty_like(x)
        dist.all_to_all_single(y, x, group=self.group)
        y = self.experts(y)
        out = torch.empty_like(y)
        dist.all_to_all_single(out, y, group=self.group)
        return out


def train(student, teacher, loader, opt):
    for x in loader:
        with torch.no_grad():
            t = teacher(x)
        F.mse_loss(student(x), t).backward()
        for p in student.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
        opt.step()
        opt.zero_grad()
