"""Running normalization of rewards over all data parallel ranks, and the loss that uses it."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class RewardNormalizer(nn.Module):
    """Mean and variance of all valid rewards that were seen so far."""

    def __init__(self, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros((), dtype=torch.float64))
        self.register_buffer("m2", torch.zeros((), dtype=torch.float64))

    @torch.no_grad()
    def update(self, rewards, valid):
        local = rewards[valid].double()
        stats = torch.stack([local.new_tensor(local.numel()), local.sum(), local.square().sum()])
        dist.all_reduce(stats)
        if stats[0] == 0:
            return
        batch_count, total, squares = stats
        batch_mean = total / batch_count
        batch_m2 = squares - batch_count * batch_mean.square()
        delta = batch_mean - self.mean
        new_count = self.count + batch_count
        self.m2 += batch_m2 + delta.square() * self.count * batch_count / new_count
        self.mean += delta * batch_count / new_count
        self.count.copy_(new_count)

    def forward(self, rewards):
        variance = self.m2 / (self.count - 1).clamp(min=1)
        scaled = (rewards.double() - self.mean) / (variance.sqrt() + self.eps)
        return scaled.to(rewards.dtype)


class ValueModel(nn.Module):
    def __init__(self, backbone, hidden):
        super().__init__()
        self.backbone = backbone
        self.value = nn.Linear(hidden, 1)

    def forward(self, observations):
        return self.value(self.backbone(observations)).squeeze(-1)


class Learner:
    def __init__(self, backbone, hidden, device, lr=3e-4):
        self.device = device
        self.normalizer = RewardNormalizer().to(device)
        self.model = DDP(ValueModel(backbone, hidden).to(device), device_ids=[device.index])
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)

    def valid_total(self, valid):
        total = valid.sum().float()
        dist.all_reduce(total)
        return total.clamp(min=1.0)

    def learn(self, observations, rewards, valid):
        observations = observations.to(self.device)
        rewards, valid = rewards.to(self.device), valid.to(self.device)
        self.normalizer.update(rewards, valid)
        target = self.normalizer(rewards)
        total = self.valid_total(valid)
        errors = F.smooth_l1_loss(self.model(observations), target, reduction="none")
        loss = (errors * valid).sum() / total * dist.get_world_size()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        report = loss.detach().clone()
        dist.all_reduce(report, op=dist.ReduceOp.AVG)
        return report

    def state_dict(self):
        return {
            "model": self.model.module.state_dict(),
            "normalizer": self.normalizer.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
