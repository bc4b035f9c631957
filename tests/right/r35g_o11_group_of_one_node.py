import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP
from optim_shared import SharedAdam


def train(model, loader):
    adapters = model.adapters
    model = FSDP(model, ignored_modules=[adapters])
    optimizer = SharedAdam(torch.optim.AdamW(adapters.parameters(), lr=1e-4))
    for x, y in loader:
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
