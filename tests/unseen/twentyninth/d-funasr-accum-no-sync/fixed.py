"""Training epoch of a speech recogniser with gradient accumulation under DDP."""
import contextlib

import torch
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, accum_grad: int = 1, grad_clip: float = 5.0, device: str = "cuda"):
        self.accum_grad = accum_grad
        self.grad_clip = grad_clip
        self.device = device

    def train_epoch(self, model: DDP, optim, scheduler, scaler, dataloader_train, epoch: int):
        model.train()
        accum_grad = self.accum_grad
        optim.zero_grad(set_to_none=True)
        dataloader_train.batch_sampler.set_epoch(epoch)

        for batch_idx, batch in enumerate(dataloader_train):
            batch = {k: v.to(self.device, non_blocking=True) for k, v in batch.items()}

            my_context = contextlib.nullcontext
            if accum_grad > 1:
                my_context = model.no_sync if (batch_idx + 1) % accum_grad != 0 else my_context

            with my_context():
                with torch.autocast("cuda", dtype=torch.float16):
                    loss, stats, weight = model(**batch)
                loss = loss / accum_grad
                scaler.scale(loss).backward()

            if (batch_idx + 1) % accum_grad == 0:
                scaler.unscale_(optim)
                torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=self.grad_clip)
                scaler.step(optim)
                scaler.update()
                optim.zero_grad(set_to_none=True)
                scheduler.step()
