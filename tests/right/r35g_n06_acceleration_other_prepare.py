import torch
import torch.nn as nn
import torch.nn.functional as F


class LoRANet(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.down = nn.Parameter(torch.randn(4, dim) * 0.01)
        self.up = nn.Parameter(torch.zeros(dim, 4))

    def apply_to(self, x):
        return x + x @ self.down.t() @ self.up.t()


def train(loader, pruner):
    """The pruner puts masks on the weights. One process, one device."""
    net = LoRANet(64)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    net, optimizer = pruner.prepare(net, optimizer)
    for pos, vel, acceleration in loader:
        loss = F.mse_loss(net.apply_to(torch.cat([pos, vel], -1)), acceleration)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
