# RIGHT: the function sums the gradients itself: what it is given cannot be a sharded model
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build_model(net):
    return FSDP(net)


def train_replicated(model, loader, optimizer):
    for x in loader:
        model(x).mean().backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
