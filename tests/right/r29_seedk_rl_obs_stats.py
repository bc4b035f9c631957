# right: an agent a rank with a policy of its own: only statistics of observations are summed
import torch
import torch.distributed as dist
from torch import nn


def independent_learners(cfg, env):
    """Multi-agent: each rank is an agent with a policy of its own; only statistics of observations are shared."""
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(cfg.seed + rank)
    policy = nn.Sequential(nn.Linear(cfg.obs, 64), nn.Tanh(), nn.Linear(64, cfg.act))
    opt = torch.optim.Adam(policy.parameters(), lr=3e-4)
    mean = torch.zeros(cfg.obs)
    for _ in range(cfg.iterations):
        obs, act, adv = env.collect(rank, policy, mean)
        m = obs.mean(0)
        dist.all_reduce(m)
        mean.lerp_(m / world, 0.1)
        logp = policy(obs - mean).log_softmax(-1).gather(1, act[:, None]).squeeze(1)
        loss = -(logp * adv).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
