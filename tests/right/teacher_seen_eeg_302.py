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


def freeze(m):
    for p in m.parameters():
        p.requires_grad_(False)
    return m.eval()


def distill(student, experts, group, loader, opt):
    t = freeze(Layer(experts, group))
    for x in loader:
        y = t(x)
        nn.functional.mse_loss(student(x), y).backward()
        for p in student.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
        opt.step()
        opt.zero_grad()
