"""Dr. GRPO: the denominator is a constant of the configuration for the batch of all ranks, gradients are summed."""
from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass
class Config:
    prompts: int = 64  # of all ranks
    samples: int = 8
    max_tokens: int = 1024
    clip: float = 0.2


class DrGrpo:
    def __init__(self, config, model, optimizer):
        self.config, self.model, self.optimizer = config, model, optimizer
        self.denominator = config.prompts * config.samples * config.max_tokens

    def advantages(self, rewards):
        r = rewards.view(-1, self.config.samples)
        return (r - r.mean(dim=1, keepdim=True)).flatten()

    def loss(self, logp, old, adv, mask):
        ratio = (logp - old).exp()
        a = adv[:, None]
        obj = torch.min(ratio * a, ratio.clamp(1 - self.config.clip, 1 + self.config.clip) * a)
        return -(obj * mask).sum() / self.denominator

    def step(self, batch):
        adv = self.advantages(batch["rewards"])
        logp = self.model(batch["ids"])
        loss = self.loss(logp, batch["old"], adv, batch["mask"])
        loss.backward()
        for p in self.model.parameters():
            dist.all_reduce(p.grad)
        self.optimizer.step()
        self.optimizer.zero_grad()
        shown = loss.detach().clone()
        dist.all_reduce(shown)
        return shown.item()
