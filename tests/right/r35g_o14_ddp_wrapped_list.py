import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from torch.nn.parallel import DistributedDataParallel as DDP


def train(model, loader, rank):
    for name in ["head", "neck"]:
        setattr(model, name, DDP(getattr(model, name).cuda(rank)))
    ignored = [model.head, model.neck]
    optimizer = torch.optim.AdamW([p for m in ignored for p in m.parameters()], lr=1e-4)
    model = FSDP(model, ignored_modules=ignored)
    for x, y in loader:
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
