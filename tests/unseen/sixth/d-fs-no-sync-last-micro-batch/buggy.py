"""Gradient accumulation under DDP."""
import torch
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, model, criterion, optimizer, device, clip_norm=1.0):
        self.model = DDP(model, device_ids=[device])
        self.criterion, self.optimizer, self.clip_norm = criterion, optimizer, clip_norm

    def train_step(self, samples):
        self.model.train()
        self.optimizer.zero_grad()
        logging_loss = 0.0
        for i, sample in enumerate(samples):
            with self.model.no_sync():
                loss = self.criterion(self.model(sample["net_input"]), sample["target"])
                (loss / len(samples)).backward()
            logging_loss += loss.item()
        grad_norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip_norm)
        self.optimizer.step()  # BUG: not even the last micro-batch synchronises the gradients
        return logging_loss / len(samples), grad_norm
