import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from accelerate import Accelerator


class LoRANet(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.down = nn.Parameter(torch.randn(4, dim) * 0.01)
        self.up = nn.Parameter(torch.zeros(dim, 4))

    def apply_to(self, x):
        return x + x @ self.down.t() @ self.up.t()


class Whole(nn.Module):
    def __init__(self, unet, parts):
        super().__init__()
        self.unet, self.parts = unet, parts

    def forward(self, x):
        return self.parts[0].apply_to(self.unet(x))


def main(unet, loader, rank):
    net = LoRANet(64).cuda(rank)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    parts = nn.ModuleList([net])
    whole = DDP(Whole(unet, parts).cuda(rank))
    accelerator = Accelerator()
    net, optimizer = accelerator.prepare(net, optimizer)
    for x, y in loader:
        accelerator.backward(F.mse_loss(whole(x), y))
        optimizer.step()
        optimizer.zero_grad()
