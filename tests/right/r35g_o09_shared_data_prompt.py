import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


def tune(model, prompt, text, steps):
    """One image is inverted: all ranks see the same text; the big model is only sharded to fit."""
    model.eval().requires_grad_(False)
    model = FSDP(model, ignored_modules=[prompt])
    optimizer = torch.optim.AdamW(prompt.parameters(), lr=1e-4)
    for _ in range(steps):
        loss = model(prompt(), text).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
