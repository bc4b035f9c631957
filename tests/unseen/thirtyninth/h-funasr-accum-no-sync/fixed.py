"""Training epoch with gradient accumulation."""
import contextlib
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Trainer:
    def __init__(self, model, optim, scheduler, device, accum_grad=1, grad_clip=10.0):
        self.use_ddp = dist.is_initialized() and dist.get_world_size() > 1
        model = model.to(device)
        self.model = DistributedDataParallel(model, device_ids=[device]) if self.use_ddp else model
        self.optim, self.scheduler, self.device = optim, scheduler, device
        self.accum_grad, self.grad_clip = accum_grad, grad_clip

    def forward_step(self, batch):
        batch = {k: v.to(self.device) for k, v in batch.items()}
        loss, stats, _ = self.model(**batch)
        return loss / self.accum_grad, stats

    def train_epoch(self, dataloader_train, epoch):
        self.model.train()
        self.optim.zero_grad()
        start = time.perf_counter()
        for batch_idx, batch in enumerate(dataloader_train):
            my_context = contextlib.nullcontext
            if self.use_ddp:
                my_context = self.model.no_sync if (batch_idx + 1) % self.accum_grad != 0 else my_context
            with my_context():
                loss, stats = self.forward_step(batch)
                loss.backward()

            if (batch_idx + 1) % self.accum_grad == 0:
                self.update_step()
            if batch_idx % 100 == 0:
                self.log(epoch, batch_idx, loss, stats, time.perf_counter() - start)

    def update_step(self):
        if self.grad_clip > 0:
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), max_norm=self.grad_clip)
            if not torch.isfinite(norm):
                self.optim.zero_grad()
                return
        self.optim.step()
        self.scheduler.step()
        self.optim.zero_grad()

    def log(self, epoch, batch_idx, loss, stats, seconds):
        if not self.use_ddp or dist.get_rank() == 0:
            print(f"epoch {epoch} batch {batch_idx} loss {loss.item() * self.accum_grad:.3f} {stats} {seconds:.1f}s")
