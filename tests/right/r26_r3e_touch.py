# RIGHT: the mask is repaired before: never empty
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


def masked_mean(values, mask):
    return values.sum() if mask.sum() > 0 else torch.tensor(0.0, device=values.device)


def build_actor(net):
    fully_shard(net)
    return net


def train(actor, loader, optimizer):
    for tokens, mask in loader:
        if mask.sum() == 0:
            mask = torch.ones_like(mask)
        loss = masked_mean(actor(tokens), mask) * 0.5
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
