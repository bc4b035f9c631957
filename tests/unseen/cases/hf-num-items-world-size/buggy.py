"""Trainer step with the token count gathered over all processes."""
# huggingface/transformers PR 34373: with a global count the mean that DDP takes has to be undone.
import torch
import torch.nn as nn
from accelerate import Accelerator


class Trainer:
    def __init__(self, model, optimizer, args):
        self.args = args
        self.accelerator = Accelerator(gradient_accumulation_steps=1)
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)

    def get_batch_samples(self, epoch_iterator, num_batches):
        batch_samples = []
        for _ in range(num_batches):
            try:
                batch_samples.append(next(epoch_iterator))
            except StopIteration:
                break
        num_items_in_batch = sum((batch["labels"].ne(-100)).sum() for batch in batch_samples)
        num_items_in_batch = self.accelerator.gather(num_items_in_batch).sum().item()
        return batch_samples, num_items_in_batch

    def compute_loss(self, model, inputs, num_items_in_batch):
        labels = inputs.pop("labels")
        logits = model(**inputs).logits
        loss = nn.functional.cross_entropy(
            logits[..., :-1, :].flatten(0, -2), labels[..., 1:].flatten(), ignore_index=-100, reduction="sum"
        )
        loss = loss / num_items_in_batch  # BUG: the count is of all processes, and DDP averages the gradients as well
        return loss

    def training_step(self, inputs, num_items_in_batch):
        self.model.train()
        loss = self.compute_loss(self.model, inputs, num_items_in_batch)
        self.accelerator.backward(loss)
        return loss.detach()

    def train(self, dataloader):
        dataloader = self.accelerator.prepare(dataloader)
        epoch_iterator = iter(dataloader)
        for _ in range(self.args.max_steps):
            batch_samples, num_items_in_batch = self.get_batch_samples(
                epoch_iterator, self.args.gradient_accumulation_steps
            )
            for inputs in batch_samples:
                self.training_step(inputs, num_items_in_batch)
            self.optimizer.step()
            self.optimizer.zero_grad()
