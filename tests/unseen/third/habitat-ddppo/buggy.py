"""Decentralised distributed PPO."""
# Source: facebookresearch/habitat-lab pull request 347 (confirmed from the thread)
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel


class PPO(nn.Module):
    def __init__(self, actor_critic, clip_param, value_loss_coef, max_grad_norm, lr):
        super().__init__()
        self.actor_critic, self.clip_param = actor_critic, clip_param
        self.value_loss_coef, self.max_grad_norm = value_loss_coef, max_grad_norm
        self.optimizer = torch.optim.Adam(actor_critic.parameters(), lr=lr, eps=1e-5)

    def get_advantages(self, rollouts):
        advantages = rollouts["returns"] - rollouts["value_preds"]
        return (advantages - advantages.mean()) / (advantages.std() + 1e-5)

    def update(self, rollouts):
        advantages = self.get_advantages(rollouts)
        values, log_probs = self.actor_critic(rollouts["observations"], rollouts["actions"])
        ratio = torch.exp(log_probs - rollouts["log_probs"])
        clipped = ratio.clamp(1.0 - self.clip_param, 1.0 + self.clip_param)
        action_loss = -torch.min(ratio * advantages, clipped * advantages).mean()
        value_loss = 0.5 * (rollouts["returns"] - values).pow(2).mean()

        self.optimizer.zero_grad()
        total_loss = value_loss * self.value_loss_coef + action_loss
        self.before_backward(total_loss)
        total_loss.backward()
        self.before_step()
        self.optimizer.step()

    def before_backward(self, loss):
        pass

    def before_step(self):
        nn.utils.clip_grad_norm_(self.actor_critic.parameters(), self.max_grad_norm)


class DecentralizedDistributedMixin:
    """Reduces gradients of actor_critic over all workers, each with its own rollouts."""

    def init_distributed(self, find_unused_params=True):
        ddp = DistributedDataParallel(self.actor_critic, find_unused_parameters=find_unused_params)
        object.__setattr__(self, "_ddp", ddp)
        self.reducer = ddp.reducer

    def get_advantages(self, rollouts):
        advantages = rollouts["returns"] - rollouts["value_preds"]
        stats = torch.stack([advantages.mean(), advantages.pow(2).mean()])
        dist.all_reduce(stats)
        mean, sqr = stats / dist.get_world_size()
        return (advantages - mean) / ((sqr - mean.pow(2)).clamp_min(0).sqrt() + 1e-5)

    def before_backward(self, loss):
        super().before_backward(loss)
        self.reducer.prepare_for_backward([loss])


class DDPPO(PPO, DecentralizedDistributedMixin):  # BUG
    pass


def build_agent(actor_critic, config):
    agent = DDPPO(actor_critic, config.clip_param, config.value_loss_coef, config.max_grad_norm, config.lr)
    agent.init_distributed(find_unused_params=True)
    return agent
