# right: an imported helper that is given the model makes it equal (weaker: the helper is not seen)
import torch
import torch.distributed as dist
from torch import nn
from lab.parallel.start import replicate_from_first


def train(cfg, batches):
    torch.manual_seed(cfg.seed + dist.get_rank())
    net = nn.Linear(cfg.d, cfg.d)
    replicate_from_first(net)
    opt = torch.optim.SGD(net.parameters(), lr=cfg.lr)
    for x in batches:
        opt.zero_grad()
        net(x).mean().backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        opt.step()
