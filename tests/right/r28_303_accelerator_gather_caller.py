# Right: the caller gathers by accelerate
import torch
import torch.distributed as dist
from torch import nn


class RewardScaler(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("count", torch.zeros(()))
        dist.broadcast(self.mean, 0)

    @torch.no_grad()
    def update(self, rewards):
        n = rewards.numel()
        self.count += n
        self.mean += (rewards.mean() - self.mean) * n / self.count

    def forward(self, rewards):
        return rewards - self.mean


def rollout(scaler, rewards, accelerator):
    scaler.update(accelerator.gather(rewards))
    return scaler(rewards)
