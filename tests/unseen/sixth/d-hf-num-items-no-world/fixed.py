"""Trainer: divide a sum of token losses by the tokens of the whole batch."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, model, optimizer, device):
        self.model = DDP(model, device_ids=[device])
        self.optimizer = optimizer

    def get_batch_samples(self, iterator, num_batches):
        batches = [next(iterator) for _ in range(num_batches)]
        num_items_in_batch = sum((b["labels"] != -100).sum() for b in batches)
        dist.all_reduce(num_items_in_batch)
        return batches, num_items_in_batch

    def compute_loss(self, inputs, num_items_in_batch):
        labels = inputs.pop("labels")
        logits = self.model(**inputs)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="sum")
        return loss / num_items_in_batch * dist.get_world_size()

    def step(self, iterator, gradient_accumulation_steps):
        batches, n = self.get_batch_samples(iterator, gradient_accumulation_steps)
        for inputs in batches:
            self.compute_loss(inputs, n).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
