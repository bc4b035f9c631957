"""Detector training loop with fitness-based early stopping."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.cuda import amp
from torch.nn.parallel import DistributedDataParallel as DDP

LOCAL_RANK = int(os.getenv("LOCAL_RANK", -1))
RANK = int(os.getenv("RANK", -1))
WORLD_SIZE = int(os.getenv("WORLD_SIZE", 1))


class EarlyStopping:
    def __init__(self, patience=30):
        self.best_fitness = 0.0
        self.best_epoch = 0
        self.patience = patience or float("inf")

    def __call__(self, epoch, fitness):
        if fitness >= self.best_fitness:
            self.best_epoch = epoch
            self.best_fitness = fitness
        return (epoch - self.best_epoch) >= self.patience


def save_checkpoint(path, epoch, model, optimizer, best_fitness):
    module = model.module if isinstance(model, DDP) else model
    torch.save(
        {
            "epoch": epoch,
            "best_fitness": best_fitness,
            "model": module.state_dict(),
            "optimizer": optimizer.state_dict(),
        },
        path,
    )


def train_one_epoch(model, loader, optimizer, scaler, compute_loss, device):
    model.train()
    mloss = torch.zeros(3, device=device)
    for i, (imgs, targets, _paths, _shapes) in enumerate(loader):
        imgs = imgs.to(device, non_blocking=True).float() / 255
        with amp.autocast():
            pred = model(imgs)
            loss, loss_items = compute_loss(pred, targets.to(device))
            if RANK != -1:
                loss *= WORLD_SIZE
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        mloss = (mloss * i + loss_items) / (i + 1)
    return mloss


def train(model, train_loader, val_loader, optimizer, scheduler, compute_loss, validate, opt):
    device = torch.device("cuda", max(LOCAL_RANK, 0))
    cuda_ddp = RANK != -1
    model = model.to(device)
    if cuda_ddp:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        model = DDP(model, device_ids=[LOCAL_RANK], output_device=LOCAL_RANK)
    scaler = amp.GradScaler()
    stopper = EarlyStopping(patience=opt.patience)
    best_fitness = 0.0

    for epoch in range(opt.epochs):
        if cuda_ddp:
            train_loader.sampler.set_epoch(epoch)
        train_one_epoch(model, train_loader, optimizer, scaler, compute_loss, device)
        scheduler.step()

        if RANK in {-1, 0}:
            fitness = validate(model.module if cuda_ddp else model, val_loader)
            best_fitness = max(best_fitness, fitness)
            save_checkpoint(opt.save_dir / "last.pt", epoch, model, optimizer, best_fitness)
            if fitness == best_fitness:
                save_checkpoint(opt.save_dir / "best.pt", epoch, model, optimizer, best_fitness)
            if stopper(epoch=epoch, fitness=fitness):
                break  # BUG

    if cuda_ddp:
        dist.barrier()
        dist.destroy_process_group()
    return best_fitness
