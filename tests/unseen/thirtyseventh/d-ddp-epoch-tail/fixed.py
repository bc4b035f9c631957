# thread: none (from memory of a DDP finetuning script)
"""Classifier finetuning with gradient accumulation over short epochs."""
import contextlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


class Meter:
    def __init__(self, device):
        self.values = torch.zeros(3, device=device)

    def add(self, loss, logits, target):
        with torch.no_grad():
            n = target.numel()
            correct = (logits.argmax(dim=-1) == target).sum()
            self.values += torch.stack([loss * n, correct.float(), loss.new_tensor(float(n))])

    def result(self):
        dist.all_reduce(self.values)
        loss, correct, count = self.values.tolist()
        return loss / count, correct / count


def window_size(step, steps, accumulation):
    """Number of batches that share the optimizer step of this one."""
    start = step - step % accumulation
    return min(accumulation, steps - start)


def train_epoch(model, loader, optimizer, scheduler, accumulation, device):
    model.train()
    meter = Meter(device)
    steps = len(loader)
    optimizer.zero_grad()
    for step, (images, target) in enumerate(loader):
        images, target = images.to(device), target.to(device)
        update = (step + 1) % accumulation == 0 or step + 1 == steps
        context = contextlib.nullcontext() if update else model.no_sync()
        with context:
            logits = model(images)
            loss = F.cross_entropy(logits, target)
            (loss / window_size(step, steps, accumulation)).backward()
        meter.add(loss.detach(), logits.detach(), target)
        if update:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    return meter.result()


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    meter = Meter(device)
    for images, target in loader:
        images, target = images.to(device), target.to(device)
        logits = model(images)
        meter.add(F.cross_entropy(logits, target), logits, target)
    return meter.result()


def main(net, train_set, test_set, cfg, device):
    model = DistributedDataParallel(net.to(device), device_ids=[device.index])
    sampler = DistributedSampler(train_set, shuffle=True, seed=cfg.seed, drop_last=True)
    loader = DataLoader(train_set, cfg.batch, sampler=sampler, num_workers=4, drop_last=True)
    part = list(range(dist.get_rank(), len(test_set), dist.get_world_size()))
    test_loader = DataLoader(torch.utils.data.Subset(test_set, part), cfg.batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, cfg.decay_every)
    for epoch in range(cfg.epochs):
        sampler.set_epoch(epoch)
        train = train_epoch(model, loader, optimizer, scheduler, cfg.accumulation, device)
        test = evaluate(model.module, test_loader, device)
        if dist.get_rank() == 0:
            print(epoch, train, test)
