# RIGHT: build_model wraps only when asked, the default is not to
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build_model(net, sharded=False):
    if sharded:
        net = FSDP(net)
    return net


def overfit(model, batch, optimizer, steps):
    for _ in range(steps):
        model(batch).mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
