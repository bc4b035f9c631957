"""The schedule is one of learning rates."""

import torch
import torch.distributed as dist


class Trainer:
    def __init__(self, model, optimizer, lr_schedule, max_norm):
        self.model, self.optimizer, self.lr_schedule, self.max_norm = model, optimizer, lr_schedule, max_norm

    def train_step(self, x, epoch):
        self.model(x).mean().backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)
        self.optimizer.step()
        self.lr_schedule.step(epoch)
