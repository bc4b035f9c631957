import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


def train(model, loader):
    head = model.head
    model = FSDP(model, ignored_modules=[head])
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-4)
    for x, y in loader:
        F.cross_entropy(model(x), y).backward()
        grads = [p.grad for p in head.parameters()]
        dist.all_reduce_coalesced(grads)
        torch._foreach_div_(grads, dist.get_world_size())
        optimizer.step()
