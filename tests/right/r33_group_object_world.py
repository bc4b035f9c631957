from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Optional, Protocol

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass
class Env:
    rank: int
    local_rank: int
    world_size: int
    process_group: Any = None


def train(model, data, env: Env, optimizer):
    device = torch.device("cuda", env.local_rank)
    for step, (x, y) in enumerate(data):
        if step % env.world_size != env.rank:
            continue
        loss = F.mse_loss(model(x.to(device)), y.to(device))
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, group=env.process_group)
            p.grad /= env.world_size
        optimizer.step()
