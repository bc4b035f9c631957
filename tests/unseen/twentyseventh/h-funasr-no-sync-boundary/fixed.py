"""One epoch of data-parallel training with gradient accumulation."""
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, model, optimizer, scheduler, local_rank, accum_grad=1, grad_clip=5.0):
        self.model = DDP(model, device_ids=[local_rank])
        self.optimizer, self.scheduler = optimizer, scheduler
        self.accum_grad, self.grad_clip = accum_grad, grad_clip

    def forward_step(self, batch):
        loss, stats, weight = self.model(**batch)
        return loss / self.accum_grad, stats

    def train_epoch(self, dataloader, device):
        self.model.train()
        self.optimizer.zero_grad()
        for batch_idx, batch in enumerate(dataloader):
            batch = {k: v.to(device) for k, v in batch.items()}
            accumulating = self.accum_grad > 1 and (batch_idx + 1) % self.accum_grad != 0
            with self.model.no_sync() if accumulating else nullcontext():
                loss, stats = self.forward_step(batch)
                loss.backward()
            if (batch_idx + 1) % self.accum_grad == 0:
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.grad_clip)
                self.optimizer.step()
                self.scheduler.step()
                self.optimizer.zero_grad()
        dist.barrier()
