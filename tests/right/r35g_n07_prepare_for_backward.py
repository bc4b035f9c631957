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


def train(loader, rank):
    net = DDP(LoRANet(64).cuda(rank))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    for x, y in loader:
        loss = F.mse_loss(net.module.apply_to(x), y)
        net.reducer.prepare_for_backward([])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
