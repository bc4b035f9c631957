# Reduced from FunASR train_utils/trainer_ds.py (modelscope/FunASR pull request 3472, read).
# Gradient accumulation under DDP: only the micro-batch before optimizer.step() must synchronise.
# What happens: the first micro-batch is all-reduced and the last one is not, so the step sees
# rank-local gradients and the replicas drift apart.
from contextlib import nullcontext

import torch


class Trainer:
    def __init__(self, accum_grad=1, grad_clip=10.0, use_ddp=True, use_fsdp=False):
        self.accum_grad, self.grad_clip = accum_grad, grad_clip
        self.use_ddp, self.use_fsdp = use_ddp, use_fsdp

    def train_epoch(self, model, optim, scheduler, scaler, dataloader_train, epoch):
        model.train()
        accum_grad = self.accum_grad
        for batch_idx, batch in enumerate(dataloader_train):
            my_context = nullcontext
            if self.use_ddp or self.use_fsdp:
                my_context = model.no_sync if (batch_idx + 1) % accum_grad != 0 else my_context
            with my_context():
                loss, stats, weight = model(**batch)
                loss = loss / accum_grad
                if scaler:
                    scaler.scale(loss).backward()
                else:
                    loss.backward()

            if (batch_idx + 1) % accum_grad == 0:
                if self.grad_clip > 0:
                    if scaler:
                        scaler.unscale_(optim)
                    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=self.grad_clip)
                if scaler:
                    scaler.step(optim)
                    scaler.update()
                else:
                    optim.step()
                scheduler.step()
                optim.zero_grad(set_to_none=True)
