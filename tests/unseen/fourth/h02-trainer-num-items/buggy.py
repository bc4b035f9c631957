"""Trainer with the number of items in the batch (HF trainer style)."""
import torch
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class SFTTrainer:
    def __init__(self, model, args, train_dataloader, optimizer):
        self.args = args
        self.model = DDP(model, device_ids=[args.local_rank])
        self.optimizer = optimizer
        self.train_dataloader = train_dataloader

    def get_batch_samples(self, iterator, num_batches):
        samples = [next(iterator) for _ in range(num_batches)]
        num_items = sum((b["labels"].ne(-100)).sum() for b in samples).to(self.args.device)
        if self.args.average_tokens_across_devices:
            dist.all_reduce(num_items, op=dist.ReduceOp.SUM)
        return samples, num_items

    def compute_loss(self, batch, num_items_in_batch):
        logits = self.model(batch["input_ids"])
        loss = F.cross_entropy(
            logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=-100, reduction="sum"
        )
        loss = loss / num_items_in_batch  # BUG
        return loss

    def training_step(self, batch, num_items_in_batch):
        self.model.train()
        loss = self.compute_loss(batch, num_items_in_batch)
        loss.backward()
        return loss.detach()

    def train(self):
        iterator = iter(self.train_dataloader)
        for _ in range(self.args.max_steps):
            samples, num_items = self.get_batch_samples(iterator, self.args.gradient_accumulation_steps)
            for batch in samples:
                self.training_step(batch, num_items)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.args.max_grad_norm)
            self.optimizer.step()
            self.optimizer.zero_grad()
