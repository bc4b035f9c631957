"""Trainer step with the loss divided by the number of target tokens of all devices.

Source: huggingface/transformers PR #34373 (average_tokens_across_devices).
"""
import torch
import torch.nn.functional as F
from accelerate import Accelerator


class Trainer:
    def __init__(self, model, optimizer, train_dataloader, gradient_accumulation_steps):
        self.accelerator = Accelerator()
        self.model, self.optimizer, self.dataloader = self.accelerator.prepare(
            model, optimizer, train_dataloader
        )
        self.steps = gradient_accumulation_steps

    def get_batch_samples(self, iterator):
        batch_samples = [next(iterator) for _ in range(self.steps)]
        num_items_in_batch = sum((b["labels"][:, 1:] != -100).sum() for b in batch_samples)
        num_items_in_batch = self.accelerator.gather(num_items_in_batch).sum()
        return batch_samples, num_items_in_batch

    def compute_loss(self, inputs, num_items_in_batch):
        labels = inputs.pop("labels")
        logits = self.model(**inputs).logits
        loss = F.cross_entropy(
            logits[:, :-1].flatten(0, 1).float(),
            labels[:, 1:].flatten(),
            ignore_index=-100,
            reduction="sum",
        )
        return loss / num_items_in_batch

    def train_batch(self, iterator):
        self.model.train()
        batch_samples, num_items_in_batch = self.get_batch_samples(iterator)
        for i, inputs in enumerate(batch_samples):
            self.model.require_backward_grad_sync = i == len(batch_samples) - 1
            loss = self.compute_loss(inputs, num_items_in_batch)
            self.accelerator.backward(loss * self.accelerator.num_processes)
        self.optimizer.step()
        self.optimizer.zero_grad()
