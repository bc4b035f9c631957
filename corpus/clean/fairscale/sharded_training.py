"""Fully sharded training with fairscale, an optimizer that shards its states, and a gradient scaler that knows about shards."""

import os
from enum import Enum

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from fairscale.nn.checkpoint import checkpoint_wrapper
from fairscale.nn.data_parallel import FullyShardedDataParallel as FSDP
from fairscale.nn.data_parallel import ShardedDataParallel as ShardedDDP
from fairscale.nn.wrap import auto_wrap, enable_wrap, wrap
from fairscale.optim.grad_scaler import ShardedGradScaler
from fairscale.optim.oss import OSS
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


class Mode(str, Enum):
    ddp = "ddp"
    oss = "oss"
    fsdp = "fsdp"


class Net(nn.Module):
    def __init__(self, dim, depth, classes):
        super().__init__()
        self.stem = wrap(nn.Linear(784, dim))
        blocks = [nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim)) for _ in range(depth)]
        self.blocks = nn.ModuleList([auto_wrap(checkpoint_wrapper(block)) for block in blocks])
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.stem(x.flatten(1))
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def build(mode, device):
    if mode is Mode.fsdp:
        with enable_wrap(wrapper_cls=FSDP, mixed_precision=True, flatten_parameters=True):
            model = FSDP(Net(512, 8, 10).to(device))
        return model, torch.optim.AdamW(model.parameters(), lr=1e-3)
    model = Net(512, 8, 10).to(device)
    if mode is Mode.oss:
        optimizer = OSS(params=model.parameters(), optim=torch.optim.AdamW, lr=1e-3)
        return ShardedDDP(model, optimizer), optimizer
    return DDP(model, device_ids=[device.index]), torch.optim.AdamW(model.parameters(), lr=1e-3)


def clip(mode, model, optimizer, max_norm):
    if mode is Mode.fsdp:
        return model.clip_grad_norm_(max_norm)
    if mode is Mode.oss:
        return optimizer.clip_grad_norm(max_norm)
    return nn.utils.clip_grad_norm_(model.parameters(), max_norm)


def accuracy(model, loader, device):
    model.eval()
    hits = torch.zeros((), device=device)
    seen = torch.zeros((), device=device)
    with torch.no_grad():
        for x, y in loader:
            hits += (model(x.to(device)).argmax(-1) == y.to(device)).float().sum()
            seen += y.numel()
    for value in (hits, seen):
        dist.all_reduce(value)
    model.train()
    return (hits / seen).item()


def main(train_set, test_set, mode=Mode.fsdp, epochs=3):
    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    model, optimizer = build(mode, device)
    scaler = ShardedGradScaler() if mode is not Mode.ddp else torch.cuda.amp.GradScaler()
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=64, sampler=sampler)
    test_loader = DataLoader(test_set, batch_size=64, sampler=DistributedSampler(test_set))
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            with torch.cuda.amp.autocast():
                loss = F.cross_entropy(model(x.to(device)), y.to(device))
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            clip(mode, model, optimizer, 1.0)
            scaler.step(optimizer)
            scaler.update()
        mean = loss.detach() / dist.get_world_size()
        dist.all_reduce(mean)
        result = accuracy(model, test_loader, device)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {mean.item():.4f}, accuracy {result:.4f}")
    if mode is Mode.oss:
        optimizer.consolidate_state_dict(recipient_rank=0)
