# right: chains of a posterior start apart on purpose; only predictions are summed
import torch
import torch.distributed as dist
from torch import nn


def posterior(cfg, loader, x_test):
    """A chain a rank: chains start apart on purpose."""
    torch.manual_seed(cfg.seed + dist.get_rank())
    net = nn.Linear(cfg.d, cfg.c)
    probs = torch.zeros(len(x_test), cfg.c)
    n = 0
    for step, (x, y) in enumerate(loader):
        net.zero_grad()
        nn.functional.cross_entropy(net(x), y, reduction="sum").backward()
        with torch.no_grad():
            for p in net.parameters():
                p.add_(-cfg.lr / 2 * p.grad + cfg.lr**0.5 * torch.randn_like(p))
            if step >= cfg.burn_in:
                probs += net(x_test).softmax(-1)
                n += 1
    dist.all_reduce(probs)
    return probs / (n * dist.get_world_size())
