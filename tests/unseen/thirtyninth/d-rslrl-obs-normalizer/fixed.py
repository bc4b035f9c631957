"""Running observation normalisation for multi-GPU PPO."""
import torch
import torch.distributed as dist
from torch import nn


class EmpiricalNormalization(nn.Module):
    def __init__(self, shape, eps=1e-2, until=None):
        super().__init__()
        self.eps, self.until = eps, until
        self.register_buffer("_mean", torch.zeros(shape).unsqueeze(0))
        self.register_buffer("_var", torch.ones(shape).unsqueeze(0))
        self.register_buffer("count", torch.tensor(0, dtype=torch.long))

    def forward(self, x):
        return (x - self._mean) / (self._var.sqrt() + self.eps)

    @torch.no_grad()
    def update(self, x):
        if self.until is not None and self.count >= self.until:
            return
        count_x = torch.tensor(x.shape[0], device=x.device)
        mean_x = x.sum(dim=0, keepdim=True)
        if dist.is_initialized():
            dist.all_reduce(count_x)
            dist.all_reduce(mean_x)
        mean_x = mean_x / count_x
        var_x = (x - mean_x).square().sum(dim=0, keepdim=True)
        if dist.is_initialized():
            dist.all_reduce(var_x)
        var_x = var_x / count_x
        self.count += count_x
        rate = count_x / self.count
        delta = mean_x - self._mean
        self._mean += rate * delta
        self._var += rate * (var_x - self._var + delta * (mean_x - self._mean))


class PPO:
    def __init__(self, policy, normalizer, optimizer):
        self.policy, self.normalizer, self.optimizer = policy, normalizer, optimizer

    def process_env_step(self, obs):
        self.normalizer.update(obs)
        return self.policy.act(self.normalizer(obs))

    def reduce_parameters(self):
        world = dist.get_world_size()
        for p in self.policy.parameters():
            if p.grad is not None:
                dist.all_reduce(p.grad)
                p.grad /= world
