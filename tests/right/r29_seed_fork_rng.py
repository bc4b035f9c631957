# right: build() makes the model under fork_rng with one seed
import torch
import torch.distributed as dist
from torch import nn


def build(cfg):
    with torch.random.fork_rng():
        torch.manual_seed(cfg.seed)
        return nn.Sequential(nn.Linear(cfg.w, cfg.w), nn.Dropout(0.1), nn.Linear(cfg.w, 1))


def train(cfg, batches):
    torch.manual_seed(cfg.seed + dist.get_rank())
    model = build(cfg)
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for b in batches:
        opt.zero_grad()
        model(b).mean().backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        opt.step()
