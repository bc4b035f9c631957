"""Gradient accumulation in the trainer. modelscope/FunASR, pull request #3472 (train_utils/trainer_ds.py)."""
from contextlib import nullcontext

import torch
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, model, optimizer, scheduler, local_rank, accum_grad=1, grad_clip=5.0):
        self.model = DDP(model, device_ids=[local_rank])
        self.optimizer, self.scheduler = optimizer, scheduler
        self.accum_grad, self.grad_clip = accum_grad, grad_clip
        self.device = torch.device("cuda", local_rank)

    def forward_step(self, batch):
        speech, text = batch["speech"].to(self.device), batch["text"].to(self.device)
        loss, stats, weight = self.model(speech=speech, text=text)
        return loss, stats

    def train_epoch(self, dataloader):
        self.model.train()
        self.optimizer.zero_grad()
        for batch_idx, batch in enumerate(dataloader):
            my_context = nullcontext
            if self.accum_grad > 1:
                my_context = (
                    nullcontext if (batch_idx + 1) % self.accum_grad == 0 else self.model.no_sync
                )
            with my_context():
                loss, stats = self.forward_step(batch)
                (loss / self.accum_grad).backward()
            if (batch_idx + 1) % self.accum_grad == 0:
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.grad_clip)
                self.optimizer.step()
                self.scheduler.step()
                self.optimizer.zero_grad()
        return stats
