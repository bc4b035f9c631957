import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


def train(model, loader, rank):
    model.head = DDP(model.head.cuda(rank))
    model = FSDP(model, ignored_modules=[model.head])
    optimizer = torch.optim.AdamW(model.head.parameters(), lr=1e-4)
    for x, y in loader:
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
