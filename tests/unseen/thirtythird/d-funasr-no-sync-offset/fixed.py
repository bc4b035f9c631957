"""Training epoch with gradient accumulation.

Source: https://github.com/modelscope/FunASR/pull/3472
Wrong: the no_sync condition counts from 0, the optimizer step from 1: the first micro-batch of a
window is reduced, the one before the step is not, so ranks step on local gradients.
Repair: both conditions on batch_idx + 1.
"""
from contextlib import nullcontext

import torch
import torch.distributed as dist


class Trainer:
    def __init__(self, accum_grad=1, grad_clip=5.0, use_ddp=True, use_fsdp=False):
        self.accum_grad = accum_grad
        self.grad_clip = grad_clip
        self.use_ddp = use_ddp
        self.use_fsdp = use_fsdp

    def train_epoch(self, model, optim, scheduler, dataloader_train):
        model.train()
        for batch_idx, batch in enumerate(dataloader_train):
            my_context = nullcontext
            if self.use_ddp or self.use_fsdp:
                my_context = model.no_sync if (batch_idx + 1) % self.accum_grad != 0 else my_context
            with my_context():
                retval = model(**batch)
                loss, stats, weight = retval
                loss = loss / self.accum_grad
                loss.backward()
            if (batch_idx + 1) % self.accum_grad == 0:
                if self.grad_clip > 0:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=self.grad_clip)
                optim.step()
                scheduler.step()
                optim.zero_grad(set_to_none=True)
        if self.use_ddp or self.use_fsdp:
            dist.barrier()
