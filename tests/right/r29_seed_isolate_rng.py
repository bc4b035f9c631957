# right: the model is made under isolate_rng with seed_everything(cfg.seed)
import torch
import torch.distributed as dist
from torch import nn
from lightning.fabric.utilities.seed import isolate_rng, seed_everything


def train(cfg, batches):
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(cfg.seed + rank)
    with isolate_rng():
        seed_everything(cfg.seed)
        net = nn.Linear(cfg.d, cfg.c)
    opt = torch.optim.SGD(net.parameters(), lr=cfg.lr)
    for x in batches:
        opt.zero_grad()
        net(x).mean().backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        opt.step()
