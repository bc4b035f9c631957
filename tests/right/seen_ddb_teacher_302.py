import torch
import torch.distributed as dist
import torch.nn as nn


class Layer(nn.Module):
    def __init__(self, experts, group):
        super().__init__()
        self.experts = experts
        self.group = group

    def forward(self, x):
        out = self.experts(x)
        parts = [torch.empty_like(out) for _ in range(self.group.size())]
        dist.all_gather(parts, out, group=self.group)
        return torch.cat(parts)


def teacher(experts, group):
    return Layer(experts, group).eval().requires_grad_(False)


def distill(student, experts, group, loader, opt):
    t = teacher(experts, group)
    for x in loader:
        with torch.no_grad():
            y = t(x)
        nn.functional.mse_loss(student(x), y).backward()
        for p in student.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
        opt.step()
        opt.zero_grad()
