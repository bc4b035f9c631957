import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class T(nn.Module):
    def __init__(self, enc, group):
        super().__init__()
        self.enc, self.group = enc, group

    def forward(self, x):
        n, r = dist.get_world_size(self.group), dist.get_rank(self.group)
        z = self.enc(x.chunk(n)[r])
        out = torch.empty(n * z.shape[0], z.shape[1], device=z.device)
        dist.all_gather_into_tensor(out, z, group=self.group)
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
