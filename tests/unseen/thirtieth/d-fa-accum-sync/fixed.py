"""Speech recognition trainer with gradient accumulation under DDP."""
import logging
import os
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.cuda.amp import GradScaler, autocast
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, model, optim, scheduler, train_loader, val_loader, **kwargs):
        self.local_rank = int(os.environ.get("LOCAL_RANK", 0))
        self.use_ddp = dist.is_initialized() and dist.get_world_size() > 1
        self.device = torch.device("cuda", self.local_rank)
        model = model.to(self.device)
        self.model = DDP(model, device_ids=[self.local_rank]) if self.use_ddp else model
        self.optim = optim
        self.scheduler = scheduler
        self.train_loader = train_loader
        self.val_loader = val_loader
        self.max_epoch = kwargs.get("max_epoch", 100)
        self.accum_grad = kwargs.get("accum_grad", 1)
        self.grad_clip = kwargs.get("grad_clip", 5.0)
        self.log_interval = kwargs.get("log_interval", 50)
        self.use_fp16 = kwargs.get("use_fp16", False)
        self.scaler = GradScaler(enabled=self.use_fp16)

    def run(self):
        for epoch in range(1, self.max_epoch + 1):
            self.train_loader.batch_sampler.set_epoch(epoch)
            self._train_epoch(epoch)
            self._validate_epoch(epoch)

    def _train_epoch(self, epoch):
        self.model.train()
        self.optim.zero_grad()
        for batch_idx, batch in enumerate(self.train_loader):
            batch = {k: v.to(self.device) for k, v in batch.items()}
            my_context = self.model.no_sync if self.use_ddp else nullcontext
            with my_context() if (batch_idx + 1) % self.accum_grad != 0 else nullcontext():
                with autocast(enabled=self.use_fp16):
                    loss, stats, weight = self.model(**batch)
                loss = loss / self.accum_grad
                self.scaler.scale(loss).backward()

            if (batch_idx + 1) % self.accum_grad == 0:
                self.scaler.unscale_(self.optim)
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), max_norm=self.grad_clip)
                self.scaler.step(self.optim)
                self.scaler.update()
                self.scheduler.step()
                self.optim.zero_grad()

            if batch_idx % self.log_interval == 0 and self.local_rank == 0:
                logging.info("epoch %d batch %d loss %.4f", epoch, batch_idx, loss.item() * self.accum_grad)

    def _validate_epoch(self, epoch):
        self.model.eval()
        total = torch.zeros(2, device=self.device)
        with torch.no_grad():
            for batch in self.val_loader:
                batch = {k: v.to(self.device) for k, v in batch.items()}
                loss, stats, weight = self.model(**batch)
                total += torch.stack([loss * weight, weight])
        if self.use_ddp:
            dist.all_reduce(total, op=dist.ReduceOp.SUM)
        if self.local_rank == 0:
            logging.info("epoch %d valid loss %.4f", epoch, (total[0] / total[1]).item())
