"""The forward is that of a base, and of one that the class gets later."""
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Base(nn.Module):
    def forward(self, x):
        return self.body(x)


class Net(Base):
    def __init__(self, dim):
        super().__init__()
        self.body = nn.Linear(dim, dim)


class Bare(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.body = nn.Linear(dim, dim)
        self.forward = self.body


def fit(loader, rank):
    net = DDP(Net(8).to(rank))
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for batch in loader:
        net(batch).mean().backward()
        opt.step()
        opt.zero_grad()


def fit_bare(loader, rank):
    net = Bare(8)
    net = DDP(net.to(rank))
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for batch in loader:
        net(batch).mean().backward()
        opt.step()
        opt.zero_grad()
