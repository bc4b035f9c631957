"""Trainer with gradient accumulation under DDP or FSDP.

modelscope/FunASR d410a5652de6, funasr/train_utils/trainer_ds.py
"""
from contextlib import nullcontext

import torch


class Trainer:
    def __init__(self, device, accum_grad=1, grad_clip=10.0, use_ddp=False, use_fsdp=False):
        self.device = device
        self.accum_grad = accum_grad
        self.grad_clip = grad_clip
        self.use_ddp = use_ddp
        self.use_fsdp = use_fsdp

    def train_epoch(self, model, optim, scheduler, scaler, dataloader_train):
        """`model` is wrapped in DistributedDataParallel or FullyShardedDataParallel."""
        model.train()
        accum_grad = self.accum_grad
        optim.zero_grad()
        for batch_idx, batch in enumerate(dataloader_train):
            loss_dict = {"batch_idx": batch_idx}
            batch = {k: v.to(self.device, non_blocking=True) for k, v in batch.items()}

            my_context = nullcontext
            if self.use_ddp or self.use_fsdp:
                my_context = model.no_sync if batch_idx % accum_grad != 0 else my_context  # BUG
            with my_context():
                self.forward_step(model, batch, loss_dict=loss_dict)
                self.backward_step(scaler, loss_dict=loss_dict)

            self.update_step(model, optim, scheduler, scaler, loss_dict=loss_dict)

    def forward_step(self, model, batch, loss_dict):
        loss, stats, weight = model(**batch)
        loss_dict["loss"] = loss

    def backward_step(self, scaler, loss_dict):
        loss = loss_dict["loss"] / self.accum_grad
        if scaler:
            scaler.scale(loss).backward()
        else:
            loss.backward()

    def update_step(self, model, optim, scheduler, scaler, loss_dict):
        batch_idx = loss_dict["batch_idx"]
        if (batch_idx + 1) % self.accum_grad == 0:
            if scaler:
                scaler.unscale_(optim)
                scaler.step(optim)
                scaler.update()
            else:
                optim.step()
            scheduler.step()
            optim.zero_grad()
