# right: the model's constructor seeds with one seed
import torch
import torch.distributed as dist
from torch import nn


class Net(nn.Module):
    def __init__(self, d, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.a = nn.Linear(d, d)
        self.b = nn.Linear(d, d)

    def forward(self, x):
        return self.b(self.a(x).relu())


def train(cfg, batches):
    torch.manual_seed(cfg.seed + dist.get_rank())
    net = Net(cfg.d, cfg.seed)
    opt = torch.optim.SGD(net.parameters(), lr=cfg.lr)
    for x in batches:
        opt.zero_grad()
        net(x).mean().backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        opt.step()
