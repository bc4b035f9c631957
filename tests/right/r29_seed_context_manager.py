# right: a context manager gives one seed for the model, and puts the stream back
import torch
import torch.distributed as dist
from torch import nn
import contextlib


@contextlib.contextmanager
def same_seed(seed):
    kept = torch.get_rng_state()
    torch.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(kept)



def train(cfg, batches):
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(cfg.seed + rank)
    with same_seed(cfg.seed):
        net = nn.Linear(cfg.d, cfg.c)
    opt = torch.optim.SGD(net.parameters(), lr=cfg.lr)
    for x in batches:
        opt.zero_grad()
        net(x).mean().backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        opt.step()
