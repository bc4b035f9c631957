# Reduces habitat-baselines' DD-PPO advantage normalisation: the mean over all workers is left as a sum of the
# per-worker means, so the variance is taken around the wrong centre.
import torch
import torch.distributed as distrib
from torch.nn.parallel import DistributedDataParallel

EPS_PPO = 1e-5


def distributed_mean_and_var(values):
    world_size = distrib.get_world_size()

    mean = values.mean()
    distrib.all_reduce(mean)
    mean = mean / world_size

    sqdiff = (values - mean).pow(2).mean()
    distrib.all_reduce(sqdiff)
    var = sqdiff / world_size
    return mean, var


class DDPPO:
    def __init__(self, actor_critic, lr, clip, device):
        self.actor_critic = DistributedDataParallel(actor_critic, device_ids=[device])
        self.optimizer = torch.optim.Adam(self.actor_critic.parameters(), lr=lr)
        self.clip = clip

    def get_advantages(self, rollouts):
        """All workers hold rollouts of the same size."""
        with torch.no_grad():
            advantages = rollouts["returns"] - rollouts["value_preds"]
            mean, var = distributed_mean_and_var(advantages)
            return (advantages - mean) / (var.sqrt() + EPS_PPO)

    def update(self, rollouts):
        adv = self.get_advantages(rollouts)
        log_probs = self.actor_critic(rollouts["observations"], rollouts["actions"])
        ratio = torch.exp(log_probs - rollouts["old_log_probs"])
        loss = -torch.min(ratio * adv, ratio.clamp(1 - self.clip, 1 + self.clip) * adv).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
