# right: all ranks but 0 zero their weights and sum: all have those of rank 0
import torch
import torch.distributed as dist
from torch import nn


def copy_from_first(net):
    for p in net.parameters():
        if dist.get_rank() != 0:
            p.data.zero_()
        dist.all_reduce(p.data)


def train(cfg, batches):
    torch.manual_seed(cfg.seed + dist.get_rank())
    net = nn.Linear(cfg.d, cfg.d)
    copy_from_first(net)
    opt = torch.optim.RMSprop(net.parameters())
    for x in batches:
        opt.zero_grad()
        net(x).mean().backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad.mul_(1.0 / dist.get_world_size())
        opt.step()
