# leggedrobotics/rsl_rl pull request 226
# Each rank updates the running mean and variance from its own environments only; gradients are shared, but the
# normalisers drift apart and feed differently scaled inputs to the same policy.
"""Running normalisation of observations in multi-GPU on-policy training."""
import torch
import torch.distributed as dist
from torch import nn


class EmpiricalNormalization(nn.Module):
    def __init__(self, shape, eps=1e-2, until=None):
        super().__init__()
        self.eps, self.until = eps, until
        self.register_buffer("_mean", torch.zeros(shape).unsqueeze(0))
        self.register_buffer("_var", torch.ones(shape).unsqueeze(0))
        self.register_buffer("_std", torch.ones(shape).unsqueeze(0))
        self.register_buffer("count", torch.tensor(0, dtype=torch.long))

    def forward(self, x):
        return (x - self._mean) / (self._std + self.eps)

    def _batch_moments(self, x):
        count = torch.tensor(float(x.shape[0]), device=x.device)
        mean = torch.mean(x, dim=0, keepdim=True)
        m2 = torch.sum((x - mean) ** 2, dim=0, keepdim=True)
        return count, mean, m2 / count  # BUG

    @torch.no_grad()
    def update(self, x):
        if not self.training:
            return
        if self.until is not None and self.count >= self.until:
            return
        count_x, mean_x, var_x = self._batch_moments(x)
        self.count += count_x.long()
        rate = count_x / self.count
        delta_mean = mean_x - self._mean
        self._mean += rate * delta_mean
        self._var += rate * (var_x - self._var + delta_mean * (mean_x - self._mean))
        self._std = torch.sqrt(self._var)


class ActorCritic(nn.Module):
    def __init__(self, num_obs, num_actions):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(num_obs, 128), nn.ELU(), nn.Linear(128, num_actions))
        self.obs_normalizer = EmpiricalNormalization(num_obs)

    def act(self, obs):
        return self.actor(self.obs_normalizer(obs))


def broadcast_parameters(policy):
    for tensor in policy.state_dict().values():
        dist.broadcast(tensor, src=0)


def reduce_parameters(policy, world_size):
    for p in policy.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
        p.grad /= world_size
