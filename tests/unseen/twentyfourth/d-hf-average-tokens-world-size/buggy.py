"""Trainer loop: token-level loss over gradient accumulation steps and devices.

After huggingface/transformers PR #34373 and issue #34242 (src/transformers/trainer.py).
"""
import contextlib
import itertools

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, model, args, train_dataloader, optimizer, lr_scheduler, device):
        self.args, self.device = args, device
        self.model = DDP(model.to(device), device_ids=[device])
        self.train_dataloader, self.optimizer, self.lr_scheduler = train_dataloader, optimizer, lr_scheduler

    def get_batch_samples(self, iterator, num_batches):
        batches = [
            {k: v.to(self.device) for k, v in batch.items()}
            for batch in itertools.islice(iterator, num_batches)
        ]
        num_items = torch.zeros((), device=self.device)
        for batch in batches:
            num_items += (batch["labels"][:, 1:] != -100).sum()
        if self.args.average_tokens_across_devices:
            dist.all_reduce(num_items)
        return batches, num_items

    def compute_loss(self, inputs, num_items_in_batch):
        labels = inputs.pop("labels")
        logits = self.model(**inputs)
        loss = F.cross_entropy(
            logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten(),
            ignore_index=-100, reduction="sum",
        )
        return loss / num_items_in_batch  # BUG: a global count, and the wrapper averages over the devices

    def training_step(self, inputs, num_items_in_batch, sync):
        with contextlib.nullcontext() if sync else self.model.no_sync():
            loss = self.compute_loss(inputs, num_items_in_batch)
            loss.backward()
        return loss.detach()

    def train(self):
        steps = self.args.gradient_accumulation_steps
        self.model.train()
        for epoch in range(self.args.num_train_epochs):
            self.train_dataloader.sampler.set_epoch(epoch)
            iterator = iter(self.train_dataloader)
            for _ in range(len(self.train_dataloader) // steps):
                batches, num_items = self.get_batch_samples(iterator, steps)
                for i, inputs in enumerate(batches):
                    self.training_step(inputs, num_items, sync=i == len(batches) - 1)
                if self.args.max_grad_norm:
                    torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.args.max_grad_norm)
                self.optimizer.step()
                self.lr_scheduler.step()
                self.optimizer.zero_grad()
