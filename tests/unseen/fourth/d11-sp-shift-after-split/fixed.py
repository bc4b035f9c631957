"""Causal LM loss where each rank has a part of the sequence (ulysses, HF style)."""
import torch
import torch.distributed as dist
import torch.nn.functional as F


class SequenceParallelTrainer:
    def __init__(self, model, optimizer, sp_group):
        self.model, self.optimizer, self.sp_group = model, optimizer, sp_group
        self.sp_rank = dist.get_rank(sp_group)
        self.sp_size = dist.get_world_size(sp_group)

    def _slice(self, t):
        """The part of the sequence that belongs to this rank."""
        n = t.size(1) // self.sp_size
        return t[:, self.sp_rank * n : (self.sp_rank + 1) * n].contiguous()

    def prepare(self, batch):
        n = batch["input_ids"].size(1)
        position_ids = torch.arange(n, device=batch["input_ids"].device).unsqueeze(0)
        labels = F.pad(batch["labels"], (0, 1), value=-100)[:, 1:]
        return {
            "input_ids": self._slice(batch["input_ids"]),
            "position_ids": self._slice(position_ids),
            "labels": self._slice(labels),
        }

    def compute_loss(self, batch):
        labels = batch.pop("labels")
        logits = self.model(**batch).logits.float()
        shift_logits = logits
        shift_labels = labels
        loss = F.cross_entropy(
            shift_logits.view(-1, shift_logits.size(-1)), shift_labels.view(-1), ignore_index=-100, reduction="sum"
        )
        count = (shift_labels != -100).sum()
        dist.all_reduce(count, group=self.sp_group)
        return loss * self.sp_size / count

    def training_step(self, batch):
        loss = self.compute_loss(self.prepare(batch))
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()
