# RIGHT: wraps where there is more than one rank; overfit() is for one
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build_model(net):
    if dist.is_initialized() and dist.get_world_size() > 1:
        net = FSDP(net)
    return net


def train(model, loader, optimizer):
    sharded = isinstance(model, FSDP)
    for batch in loader:
        model(batch).mean().backward()
        (model.clip_grad_norm_ if sharded else lambda m: torch.nn.utils.clip_grad_norm_(model.parameters(), m))(1.0)
        optimizer.step()
        optimizer.zero_grad()
