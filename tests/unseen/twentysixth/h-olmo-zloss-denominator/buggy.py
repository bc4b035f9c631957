# OLMo d7994c86 (#634)
"""Micro-batched training step with cross entropy and z-loss under DDP."""
from contextlib import nullcontext

import torch
import torch.nn.functional as F


class Trainer:
    def __init__(self, dist_model, optim, cfg):
        self.dist_model, self.optim, self.cfg = dist_model, optim, cfg  # dist_model: DDP

    def model_forward(self, batch):
        logits = self.dist_model(batch["input_ids"])[:, :-1].float()
        labels = batch["input_ids"][:, 1:]
        ce_loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
        z_loss = self.cfg.z_loss_multiplier * logits.logsumexp(-1).pow(2).sum()
        return ce_loss, z_loss

    def train_micro_batch(self, micro_batch, batch_size_in_tokens, num_micro_batches):
        ce_loss, z_loss = self.model_forward(micro_batch)
        ce_loss = ce_loss / batch_size_in_tokens
        z_loss = z_loss / num_micro_batches  # BUG: a sum over tokens, not a mean
        return ce_loss + z_loss

    def train_batch(self, batch):
        size = self.cfg.device_train_microbatch_size
        micro_batches = [{"input_ids": ids} for ids in batch["input_ids"].split(size, dim=0)]
        batch_size_in_tokens = batch["input_ids"].numel()  # the same on every rank
        for i, micro_batch in enumerate(micro_batches):
            last = i == len(micro_batches) - 1
            with nullcontext() if last else self.dist_model.no_sync():
                loss = self.train_micro_batch(micro_batch, batch_size_in_tokens, len(micro_batches))
                loss.backward()
        torch.nn.utils.clip_grad_norm_(self.dist_model.parameters(), self.cfg.max_grad_norm)
        self.optim.step()
        self.optim.zero_grad()
