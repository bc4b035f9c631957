import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def train(model, loader, every=10):
    head = model.head
    model = FSDP(model, ignored_modules=[head])
    optimizer = torch.optim.SGD(head.parameters(), lr=1e-2)
    for i, (x, y) in enumerate(loader):
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        if i % every == 0:
            flat = nn.utils.parameters_to_vector(head.parameters()).detach()
            dist.all_reduce(flat, op=dist.ReduceOp.AVG)
            nn.utils.vector_to_parameters(flat, head.parameters())
