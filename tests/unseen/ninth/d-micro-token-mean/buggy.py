"""Supervised fine-tuning with accumulation over packed micro batches of different lengths."""
import contextlib
import dataclasses

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclasses.dataclass
class SftConfig:
    lr: float = 1e-5
    accumulate: int = 8
    max_norm: float = 1.0
    ignore_index: int = -100
    log_every: int = 10


def summed_loss(logits, labels, ignore_index):
    return F.cross_entropy(
        logits.flatten(0, 1).float(), labels.flatten(), ignore_index=ignore_index, reduction="sum"
    )


class SftTrainer:
    def __init__(self, model, cfg, device):
        self.cfg, self.device = cfg, device
        self.model = DDP(model.to(device), device_ids=[device.index])
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=0.0)
        self.world = dist.get_world_size()

    def valid_tokens(self, micro_batches):
        count = sum((b["labels"] != self.cfg.ignore_index).sum() for b in micro_batches)
        count = count.to(torch.float32)
        dist.all_reduce(count)
        return count.clamp(min=1.0)

    def step(self, micro_batches):
        micro_batches = [{k: v.to(self.device) for k, v in b.items()} for b in micro_batches]
        tokens = self.valid_tokens(micro_batches)
        report = torch.zeros((), device=self.device)
        self.optimizer.zero_grad(set_to_none=True)
        for number, batch in enumerate(micro_batches):
            last = number == len(micro_batches) - 1
            with contextlib.nullcontext() if last else self.model.no_sync():
                logits = self.model(batch["input_ids"], batch["position_ids"])
                total = summed_loss(logits, batch["labels"], self.cfg.ignore_index)
                valid = (batch["labels"] != self.cfg.ignore_index).sum().clamp(min=1)
                loss = total / valid / len(micro_batches)  # BUG
                loss.backward()
            report += total.detach()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg.max_norm)
        self.optimizer.step()
        dist.all_reduce(report)
        return report / tokens

    def fit(self, loader, sampler, schedule, epochs):
        self.model.train()
        steps = 0
        for epoch in range(epochs):
            sampler.set_epoch(epoch)
            window = []
            for batch in loader:
                window.append(batch)
                if len(window) < self.cfg.accumulate:
                    continue
                loss = self.step(window)
                schedule.step()
                window = []
                steps += 1
                if steps % self.cfg.log_every == 0 and dist.get_rank() == 0:
                    print(f"epoch {epoch} step {steps} loss {loss.item():.4f}")
