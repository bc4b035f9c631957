# modelscope/FunASR, pull request 3472 - https://github.com/modelscope/FunASR/pull/3472 (read)
# no_sync() is entered on batch_idx % accum_grad != 0 while the optimizer steps on
# (batch_idx + 1) % accum_grad == 0: the first micro batch is reduced, the last ones are not.
"""Train one epoch with gradient accumulation (trainer of a speech toolkit)."""
from contextlib import nullcontext

import torch
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, local_rank=0, use_ddp=False, accum_grad=1, grad_clip=10.0):
        self.local_rank, self.use_ddp = local_rank, use_ddp
        self.accum_grad, self.grad_clip = accum_grad, grad_clip

    def wrap(self, model):
        if self.use_ddp:
            model = DDP(model, device_ids=[self.local_rank], find_unused_parameters=False)
        return model

    def train_epoch(self, model, optim, scheduler, dataloader_train):
        model.train()
        optim.zero_grad()
        for batch_idx, batch in enumerate(dataloader_train):
            my_context = nullcontext
            if self.use_ddp:
                my_context = model.no_sync if batch_idx % self.accum_grad != 0 else my_context  # BUG: not the stepping batch
            with my_context():
                loss, stats, weight = model(**batch)
                loss = loss / self.accum_grad
                loss.backward()

            if (batch_idx + 1) % self.accum_grad == 0:
                torch.nn.utils.clip_grad_norm_(model.parameters(), self.grad_clip)
                optim.step()
                optim.zero_grad()
                scheduler.step()
