"""Preference training step that scores chosen and rejected answers."""
import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class RewardTrainer:
    def __init__(self, model, optimizer, device):
        self.model = DDP(model.to(device), device_ids=[device])
        self.optimizer = optimizer

    def compute_loss(self, inputs):
        rewards_chosen = self.model(inputs["input_ids_chosen"])
        rewards_rejected = self.model(inputs["input_ids_rejected"])
        return -F.logsigmoid(rewards_chosen - rewards_rejected).mean()

    def training_step(self, inputs):
        self.model.train()
        loss = self.compute_loss(inputs)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()
