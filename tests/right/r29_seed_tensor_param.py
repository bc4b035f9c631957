# right: parameters are ones and zeros; the seed is for dropout
import torch
import torch.distributed as dist
from torch import nn

class Scale(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d))
        self.shift = nn.Parameter(torch.zeros(d))
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return self.drop(x) * self.gain + self.shift



def train(cfg, batches):
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(cfg.seed + rank)
    net = Scale(cfg.d)
    opt = torch.optim.SGD(net.parameters(), lr=cfg.lr)
    for x in batches:
        opt.zero_grad()
        net(x).mean().backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        opt.step()
