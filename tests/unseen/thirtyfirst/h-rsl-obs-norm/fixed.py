"""On-policy actor-critic training on several GPUs with a shared observation normalizer."""
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class EmpiricalNormalization(nn.Module):
    """Running mean / variance of everything seen so far, equal on all ranks."""

    def __init__(self, shape, eps=1e-2, until=None):
        super().__init__()
        self.eps, self.until = eps, until
        self.register_buffer("mean", torch.zeros(1, shape))
        self.register_buffer("var", torch.ones(1, shape))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    def forward(self, x):
        return (x - self.mean) / (self.var.sqrt() + self.eps)

    @staticmethod
    def _global_moments(x):
        local_count = torch.tensor(float(x.shape[0]), dtype=torch.float64, device=x.device)
        local_mean = x.mean(dim=0, keepdim=True)
        local_var = x.var(dim=0, unbiased=False, keepdim=True)
        if not dist.is_initialized():
            return local_count, local_mean, local_var
        count = local_count.clone()
        dist.all_reduce(count)
        mean = local_mean * (local_count / count).to(x.dtype)
        dist.all_reduce(mean)
        second_moment = local_count.to(x.dtype) * (local_var + (local_mean - mean).square())
        dist.all_reduce(second_moment)
        return count, mean, second_moment / count.to(x.dtype)

    @torch.no_grad()
    def update(self, x):
        if self.until is not None and self.count >= self.until:
            return
        count, mean, var = self._global_moments(x)
        self.count += count
        rate = (count / self.count).to(x.dtype)
        delta = mean - self.mean
        self.mean += rate * delta
        self.var += rate * (var - self.var + delta * (mean - self.mean))


class ActorCritic(nn.Module):
    def __init__(self, obs_dim, act_dim, hidden=64):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(obs_dim, hidden), nn.ELU(), nn.Linear(hidden, act_dim))
        self.critic = nn.Sequential(nn.Linear(obs_dim, hidden), nn.ELU(), nn.Linear(hidden, 1))
        self.log_std = nn.Parameter(torch.zeros(act_dim))

    def distribution(self, obs):
        return torch.distributions.Normal(self.actor(obs), self.log_std.exp())


class PointMassEnv:
    """Batched toy task; the start distribution depends on the terrain assigned to the rank."""

    def __init__(self, num_envs, dim, terrain, device):
        self.num_envs, self.dim, self.terrain, self.device = num_envs, dim, terrain, device
        self.reset()

    def reset(self):
        self.state = torch.randn(self.num_envs, self.dim, device=self.device) + 3.0 * self.terrain
        return self.state

    def step(self, action):
        self.state = 0.95 * self.state + 0.1 * action
        return self.state, -self.state.square().mean(dim=-1)


class Runner:
    def __init__(self, env, policy, normalizer, lr=1e-3, horizon=16, gamma=0.98):
        self.env, self.policy, self.normalizer = env, policy, normalizer
        self.horizon, self.gamma = horizon, gamma
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=lr)

    @torch.no_grad()
    def collect(self):
        obs, observations, actions, rewards = self.env.reset(), [], [], []
        for _ in range(self.horizon):
            action = self.policy.distribution(self.normalizer(obs)).sample()
            observations.append(obs)
            actions.append(action)
            obs, reward = self.env.step(action)
            rewards.append(reward)
        returns, running = [], torch.zeros_like(rewards[0])
        for reward in reversed(rewards):
            running = reward + self.gamma * running
            returns.append(running)
        return torch.cat(observations), torch.cat(actions), torch.cat(returns[::-1])

    def reduce_parameters(self):
        world = dist.get_world_size()
        grads = torch.cat([p.grad.flatten() for p in self.policy.parameters()])
        dist.all_reduce(grads)
        grads /= world
        offset = 0
        for param in self.policy.parameters():
            param.grad.copy_(grads[offset : offset + param.numel()].view_as(param))
            offset += param.numel()

    def learn_iteration(self):
        raw_obs, actions, returns = self.collect()
        obs = self.normalizer(raw_obs)
        values = self.policy.critic(obs).squeeze(-1)
        log_prob = self.policy.distribution(obs).log_prob(actions).sum(-1)
        loss = -(log_prob * (returns - values.detach())).mean() + 0.5 * F.mse_loss(values, returns)
        self.optimizer.zero_grad()
        loss.backward()
        self.reduce_parameters()
        self.optimizer.step()
        self.normalizer.update(raw_obs)
        mean_return = returns.mean()
        dist.all_reduce(mean_return)
        return mean_return.item() / dist.get_world_size()


def main(num_envs=256, obs_dim=8, iterations=20, seed=1):
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    rank = dist.get_rank()
    torch.manual_seed(seed)
    policy = ActorCritic(obs_dim, obs_dim).to(device)
    normalizer = EmpiricalNormalization(obs_dim).to(device)
    torch.manual_seed(seed + 1 + rank)
    env = PointMassEnv(num_envs, obs_dim, terrain=rank, device=device)
    runner = Runner(env, policy, normalizer)
    for iteration in range(iterations):
        mean_return = runner.learn_iteration()
        if rank == 0:
            print(f"iteration {iteration} return {mean_return:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
