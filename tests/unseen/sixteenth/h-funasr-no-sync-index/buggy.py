# modelscope/FunASR pull request 3472 (commit d410a5652)
# With batch_idx counted from zero, batch_idx % accum_grad != 0 synchronises the first micro-batch and suppresses
# the all-reduce on the one before the optimizer step, so every rank steps with local gradients.
"""Training epoch with gradient accumulation under DistributedDataParallel."""
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, local_rank, accum_grad, grad_clip, use_ddp, world_size):
        self.local_rank, self.accum_grad, self.grad_clip = local_rank, accum_grad, grad_clip
        self.use_ddp, self.world_size = use_ddp, world_size

    def wrap(self, model):
        model = model.cuda(self.local_rank)
        if self.use_ddp:
            model = DDP(model, device_ids=[self.local_rank])
        return model

    def forward_step(self, model, batch):
        loss, stats = model(**batch)
        return loss / self.accum_grad, stats

    def train_epoch(self, model, optim, scheduler, dataloader_train, epoch):
        model.train()
        optim.zero_grad()
        accum_grad = self.accum_grad
        if self.use_ddp:
            dataloader_train.batch_sampler.set_epoch(epoch)
        running = torch.zeros((), device=f"cuda:{self.local_rank}")

        for batch_idx, batch in enumerate(dataloader_train):
            my_context = nullcontext
            if self.use_ddp:
                my_context = model.no_sync if batch_idx % accum_grad != 0 else my_context  # BUG
            with my_context():
                loss, _ = self.forward_step(model, batch)
                loss.backward()
            running += loss.detach()

            if (batch_idx + 1) % accum_grad == 0:
                if self.grad_clip > 0:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=self.grad_clip)
                optim.step()
                scheduler.step()
                optim.zero_grad()

        if self.use_ddp:
            dist.all_reduce(running)
            running /= self.world_size
        return running.item()
