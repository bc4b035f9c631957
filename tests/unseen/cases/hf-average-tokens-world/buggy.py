"""Trainer step that divides the loss by the number of tokens of all devices."""
import torch
from torch.nn.parallel import DistributedDataParallel


class Trainer:
    def __init__(self, model, optimizer, accelerator, args):
        self.model = DistributedDataParallel(model)
        self.optimizer, self.accelerator, self.args = optimizer, accelerator, args

    def compute_loss(self, inputs, num_items_in_batch):
        logits = self.model(inputs["input_ids"])
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), inputs["labels"].flatten(), reduction="sum"
        )
        return loss / num_items_in_batch  # BUG: DDP divides by the world size once more

    def training_step(self, inputs):
        num_items_in_batch = (inputs["labels"] != -100).sum()
        num_items_in_batch = self.accelerator.gather(num_items_in_batch).sum()
        loss = self.compute_loss(inputs, num_items_in_batch)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()
