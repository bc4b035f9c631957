"""One epoch of speech recogniser training with gradient accumulation."""
# thread: modelscope/FunASR#3472
from contextlib import nullcontext

import torch
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, model, optim, scheduler, local_rank, accum_grad=4, grad_clip=5.0):
        self.model = DDP(model, device_ids=[local_rank])
        self.optim, self.scheduler = optim, scheduler
        self.accum_grad, self.grad_clip = accum_grad, grad_clip

    def train_epoch(self, dataloader):
        self.model.train()
        self.optim.zero_grad()
        for batch_idx, batch in enumerate(dataloader):
            sync = (batch_idx + 1) % self.accum_grad == 0
            context = nullcontext if sync else self.model.no_sync
            with context():
                loss, stats = self.model(**batch)
                (loss / self.accum_grad).backward()
            if (batch_idx + 1) % self.accum_grad == 0:
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.grad_clip)
                self.optim.step()
                self.scheduler.step()
                self.optim.zero_grad()
