import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class Probe(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        z = self.net(x)
        parts = [torch.empty_like(z) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, z)
        return torch.cat(parts)


def score(model, helper, val):
    return sum(helper(x).var(0).mean() for x, _ in val)


def train(net, loader, val, crit, helper):
    model = torch.nn.parallel.DistributedDataParallel(net)
    opt = torch.optim.AdamW(model.parameters())
    for x, y in loader:
        loss = crit(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        print(score(model, helper, val))
