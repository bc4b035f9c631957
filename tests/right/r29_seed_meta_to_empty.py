# right: weights are drawn by reset_parameters() after cuda.manual_seed(cfg.seed)
import torch
import torch.distributed as dist
from torch import nn


def train(cfg, batches):
    torch.manual_seed(cfg.seed + dist.get_rank())
    with torch.device("meta"):
        net = nn.Linear(cfg.d, cfg.d)
    net.to_empty(device="cuda")
    torch.cuda.manual_seed(cfg.seed)
    net.reset_parameters()
    torch.cuda.manual_seed(cfg.seed + dist.get_rank())
    opt = torch.optim.SGD(net.parameters(), lr=cfg.lr)
    for x in batches:
        opt.zero_grad()
        net(x).mean().backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        opt.step()
