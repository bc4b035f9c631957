"""Gradient accumulation under DDP."""
# modelscope/FunASR PR 3472: the condition lets the first micro-batch synchronise and keeps the last one, before the step, in no_sync.
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, accum_grad, grad_clip, use_ddp, use_fsdp):
        self.accum_grad = accum_grad
        self.grad_clip = grad_clip
        self.use_ddp = use_ddp
        self.use_fsdp = use_fsdp

    def wrap(self, model, local_rank):
        model = model.to(local_rank)
        if self.use_ddp:
            model = DDP(model, device_ids=[local_rank], find_unused_parameters=False)
        return model

    def train_epoch(self, model, optim, scheduler, dataloader_train):
        model.train()
        optim.zero_grad()
        for batch_idx, batch in enumerate(dataloader_train):
            batch = {k: v.cuda() for k, v in batch.items()}
            my_context = nullcontext
            if self.use_ddp or self.use_fsdp:
                my_context = model.no_sync if (batch_idx + 1) % self.accum_grad != 0 else my_context
            with my_context():
                loss, stats, weight = model(**batch)
                loss = loss / self.accum_grad
                loss.backward()

            if (batch_idx + 1) % self.accum_grad == 0:
                if self.grad_clip > 0:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=self.grad_clip)
                optim.step()
                scheduler.step()
                optim.zero_grad(set_to_none=True)

    def run(self, model, optim, scheduler, loader, epochs):
        dist.init_process_group("nccl")
        model = self.wrap(model, dist.get_rank())
        for _ in range(epochs):
            self.train_epoch(model, optim, scheduler, loader)
