# RIGHT: the annotation says DDP; build_model of the file gives FSDP
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


def build_model(net):
    return FSDP(net)


def train(model: DDP, loader, optimizer):
    for x in loader:
        model(x).mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
