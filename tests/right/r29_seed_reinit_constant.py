# right: model.apply(init_weights) sets constants (eye, zeros)
import torch
import torch.distributed as dist
from torch import nn


def init_weights(m):
    if isinstance(m, nn.Linear):
        nn.init.zeros_(m.bias)
        nn.init.eye_(m.weight)


def train(cfg, batches, rank):
    torch.manual_seed(cfg.seed + rank)
    model = nn.Sequential(nn.Linear(cfg.w, cfg.w), nn.ReLU(), nn.Linear(cfg.w, cfg.w))
    model.apply(init_weights)
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for b in batches:
        opt.zero_grad()
        model(b).pow(2).mean().backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        opt.step()
