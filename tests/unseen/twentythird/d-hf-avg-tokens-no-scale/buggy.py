"""Trainer loss normalised by the number of label tokens of the whole batch."""
import torch
import torch.nn.functional as F
from accelerate import Accelerator


class Trainer:
    def __init__(self, model, optimizer, args):
        self.accelerator = Accelerator()
        self.args = args
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)  # DDP

    def get_num_items_in_batch(self, batches):
        num_items = sum((b["labels"][..., 1:] != -100).sum() for b in batches)
        if self.args.average_tokens_across_devices:
            num_items = self.accelerator.gather(num_items).sum()
        return num_items

    def compute_loss(self, inputs, num_items_in_batch):
        logits = self.model(input_ids=inputs["input_ids"]).logits[..., :-1, :]
        loss = F.cross_entropy(
            logits.flatten(0, 1).float(), inputs["labels"][..., 1:].flatten(), reduction="sum"
        )
        loss = loss / num_items_in_batch  # BUG: DDP divides by the number of processes once more
        return loss

    def training_step(self, batches):
        num_items = self.get_num_items_in_batch(batches)
        for i, batch in enumerate(batches):
            self.model.require_backward_grad_sync = i + 1 == len(batches)
            self.compute_loss(batch, num_items).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
