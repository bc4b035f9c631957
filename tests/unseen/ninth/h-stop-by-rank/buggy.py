"""Image classifier training with validation, patience and best checkpoints."""
import dataclasses
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


@dataclasses.dataclass
class FitConfig:
    epochs: int = 200
    batch_size: int = 128
    lr: float = 0.1
    patience: int = 5
    min_delta: float = 1e-4
    workers: int = 8


class Patience:
    def __init__(self, patience, min_delta):
        self.patience, self.min_delta = patience, min_delta
        self.best = float("inf")
        self.bad_epochs = 0

    def update(self, value):
        improved = value < self.best - self.min_delta
        if improved:
            self.best, self.bad_epochs = value, 0
        else:
            self.bad_epochs += 1
        return improved

    @property
    def exhausted(self):
        return self.bad_epochs >= self.patience


@torch.no_grad()
def validate(model, loader, device):
    model.eval()
    sums = torch.zeros(3, device=device)
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        logits = model(images)
        sums[0] += F.cross_entropy(logits, labels, reduction="sum")
        sums[1] += (logits.argmax(-1) == labels).sum()
        sums[2] += len(labels)
    model.train()
    loss, accuracy = sums[0] / sums[2], sums[1] / sums[2]  # BUG
    return loss.item(), accuracy.item()


def loaders(cfg, train_set, valid_set):
    sampler = DistributedSampler(train_set, shuffle=True, drop_last=True)
    train = DataLoader(train_set, cfg.batch_size, sampler=sampler, num_workers=cfg.workers, drop_last=True)
    indices = range(dist.get_rank(), len(valid_set), dist.get_world_size())
    valid = DataLoader(torch.utils.data.Subset(valid_set, indices), cfg.batch_size, num_workers=cfg.workers)
    return sampler, train, valid


def fit(cfg, model, train_set, valid_set, path):
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    model = DDP(model.to(device), device_ids=[device.index])
    sampler, train_loader, valid_loader = loaders(cfg, train_set, valid_set)
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr, momentum=0.9, weight_decay=5e-5)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, cfg.epochs)
    patience = Patience(cfg.patience, cfg.min_delta)
    for epoch in range(cfg.epochs):
        sampler.set_epoch(epoch)
        for images, labels in train_loader:
            logits = model(images.to(device, non_blocking=True))
            loss = F.cross_entropy(logits, labels.to(device, non_blocking=True), label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
        value, accuracy = validate(model.module, valid_loader, device)
        if patience.update(value) and dist.get_rank() == 0:
            torch.save(model.module.state_dict(), path)
            print(f"epoch {epoch} loss {value:.4f} accuracy {accuracy:.4f}")
        if patience.exhausted:
            break
    dist.barrier()
