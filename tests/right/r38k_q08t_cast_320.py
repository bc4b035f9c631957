import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP
from lib import build_optimizer
from typing import cast


def train(model, loader, cfg):
    fully_shard(model)
    cast(FSDPModule, model).set_gradient_divide_factor(1.0)
    optimizer = torch.optim.AdamW(model.parameters())
    for x, y in loader:
        n = (y != -100).sum()
        dist.all_reduce(n)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum") / n
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

