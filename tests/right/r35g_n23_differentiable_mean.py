import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP



class LoRANet(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.down = nn.Parameter(torch.randn(4, dim) * 0.01)
        self.up = nn.Parameter(torch.zeros(dim, 4))

    def apply_to(self, x):
        return x + x @ self.down.t() @ self.up.t()


class MeanGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, acc):
        dist.all_reduce(acc)
        return acc / dist.get_world_size()


def train(loader, rank):
    net = DDP(LoRANet(64).cuda(rank))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    for x, y in loader:
        down, up = MeanGrad.apply(net.module.down), MeanGrad.apply(net.module.up)
        loss = F.mse_loss(x + x @ down.t() @ up.t(), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
