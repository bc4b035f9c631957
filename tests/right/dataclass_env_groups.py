"""Parallel state in a dataclass whose groups are made from the layout; cp of size one when it is not used."""
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class State:
    dp_group: Any
    dp_size: int
    rank: int

    @classmethod
    def create(cls):
        return cls(dp_group=dist.group.WORLD, dp_size=dist.get_world_size(), rank=dist.get_rank())


def count(labels):
    n = (labels != -100).sum()
    dist.all_reduce(n)
    return n


def train(state, net, loader):
    model = DDP(net)
    optimizer = torch.optim.AdamW(model.parameters())
    for tokens, labels in loader:
        logits = model(tokens)
        nll = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
        n = count(labels)
        loss = nll * state.dp_size / n
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        shown = loss.detach() / state.dp_size
        dist.all_reduce(shown, group=state.dp_group)
        if state.rank == 0:
            print(shown.item())


if __name__ == "__main__":
    from recipe import loader, net

    dist.init_process_group("nccl")
    train(State.create(), net.cuda(), loader)
