# RIGHT: wrap_model in FSDP, wrap_model_ddp in DDP; train_ddp(model)
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


def wrap_model(net):
    return FSDP(net)


def wrap_model_ddp(net):
    return DDP(net)


def train_ddp(model, loader, optimizer):
    for x in loader:
        model(x).mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
