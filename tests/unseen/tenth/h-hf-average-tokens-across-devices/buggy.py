"""Trainer loss normalised by the token count of the whole accumulated batch.

transformers, `average_tokens_across_devices`.
"""
import torch
from accelerate import Accelerator


class Trainer:
    def __init__(self, model, optimizer, gradient_accumulation_steps):
        self.accelerator = Accelerator()
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)  # DistributedDataParallel
        self.gradient_accumulation_steps = gradient_accumulation_steps

    def get_batch_samples(self, epoch_iterator):
        batch_samples = [next(epoch_iterator) for _ in range(self.gradient_accumulation_steps)]
        num_items_in_batch = sum(b["labels"][..., 1:].ne(-100).sum() for b in batch_samples)
        num_items_in_batch = num_items_in_batch.to(self.accelerator.device)
        num_items_in_batch = self.accelerator.gather(num_items_in_batch).sum()
        return batch_samples, num_items_in_batch

    def compute_loss(self, model, inputs, num_items_in_batch):
        logits = model(**{k: v for k, v in inputs.items() if k != "labels"}).logits
        shift_logits = logits[..., :-1, :].float().flatten(0, 1)
        shift_labels = inputs["labels"][..., 1:].flatten()
        loss = torch.nn.functional.cross_entropy(shift_logits, shift_labels, ignore_index=-100, reduction="sum")
        return loss / num_items_in_batch  # BUG: global count, then DDP takes the mean over processes

    def train_batch(self, epoch_iterator):
        self.optimizer.zero_grad()
        batch_samples, num_items_in_batch = self.get_batch_samples(epoch_iterator)
        for inputs in batch_samples:
            inputs = {k: v.to(self.accelerator.device) for k, v in inputs.items()}
            loss = self.compute_loss(self.model, inputs, num_items_in_batch)
            self.accelerator.backward(loss)
        self.optimizer.step()
