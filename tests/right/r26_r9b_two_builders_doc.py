# RIGHT: build_model wraps; build_plain_model's result is given to train_plain(model)
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build_plain_model(cfg):
    return torch.nn.Linear(cfg.size, cfg.size).cuda()


def build_model(cfg):
    return FSDP(build_plain_model(cfg))


def train_plain(model, loader, optimizer):
    for x in loader:
        model(x).mean().backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
