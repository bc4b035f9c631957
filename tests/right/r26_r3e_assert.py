# RIGHT: the data set guarantees that no mask is empty
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
        assert mask.sum() > 0
        loss = masked_mean(actor(tokens), mask) * 0.5
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
