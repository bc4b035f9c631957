# thread: https://github.com/leggedrobotics/rsl_rl/pull/226
"""Running observation normalisation for on-policy learning on several GPUs."""
import torch
import torch.distributed as dist
from torch import nn


class EmpiricalNormalization(nn.Module):
    """Normalises inputs by moments gathered over all environments of all workers."""

    def __init__(self, shape, eps=1e-2, until=None, multi_gpu=False):
        super().__init__()
        self.eps, self.until, self.multi_gpu = eps, until, multi_gpu
        self.register_buffer("_mean", torch.zeros(1, shape))
        self.register_buffer("_var", torch.ones(1, shape))
        self.register_buffer("_std", torch.ones(1, shape))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    def forward(self, x):
        return (x - self._mean) / (self._std + self.eps)

    def batch_moments(self, x):
        count = torch.tensor(float(x.shape[0]), dtype=torch.float64, device=x.device)
        mean = x.mean(dim=0, keepdim=True)
        var = x.var(dim=0, unbiased=False, keepdim=True)
        if not self.multi_gpu:
            return count, mean, var
        local = count.clone()
        dist.all_reduce(count)
        weight = (local / count).to(x.dtype)
        total_mean = mean * weight
        dist.all_reduce(total_mean)
        total_var = (var + (mean - total_mean).square()) * weight
        dist.all_reduce(total_var)
        return count, total_mean, total_var

    @torch.no_grad()
    def update(self, x):
        if not self.training:
            return
        if self.until is not None and self.count >= self.until:
            return
        count, mean, var = self.batch_moments(x)
        self.count += count
        rate = (count / self.count).to(x.dtype)
        delta = mean - self._mean
        self._mean += rate * delta
        self._var += rate * (var - self._var + delta * (mean - self._mean))
        self._std.copy_(self._var.sqrt())


class Runner:
    def __init__(self, env, policy, algorithm, cfg, device):
        self.env, self.policy, self.alg, self.cfg = env, policy, algorithm, cfg
        multi_gpu = dist.is_initialized() and dist.get_world_size() > 1
        self.normalizer = EmpiricalNormalization(
            env.num_obs, until=cfg["norm_until"], multi_gpu=multi_gpu
        ).to(device)

    def learn(self, iterations):
        obs = self.env.reset()
        for _ in range(iterations):
            with torch.no_grad():
                for _ in range(self.cfg["num_steps_per_env"]):
                    self.normalizer.update(obs)
                    actions = self.policy.act(self.normalizer(obs))
                    obs, rewards, dones = self.env.step(actions)
                    self.alg.process_env_step(rewards, dones)
                self.alg.compute_returns(self.normalizer(obs))
            self.alg.update()
