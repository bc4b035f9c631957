"""PPO learner: advantages normalised over all workers (habitat / rllib style)."""
import torch
import torch.distributed as dist

EPS_PPO = 1e-5


def distributed_var_mean(values):
    world_size = dist.get_world_size()
    mean = values.mean()
    dist.all_reduce(mean)
    mean = mean / world_size
    var = (values - mean).pow(2).mean()
    dist.all_reduce(var)
    return var / world_size, mean


class DecentralizedDistributedMixin:
    def get_advantages(self, rollouts):
        advantages = rollouts.returns[:-1] - rollouts.value_preds[:-1]
        if not self.use_normalized_advantage:
            return advantages
        var, mean = distributed_var_mean(advantages)
        return (advantages - mean) / (var.sqrt() + EPS_PPO)

    def init_distributed(self):
        self.actor_critic = torch.nn.parallel.DistributedDataParallel(self.actor_critic)


class DDPPO(DecentralizedDistributedMixin):
    def __init__(self, actor_critic, cfg):
        self.actor_critic = actor_critic
        self.use_normalized_advantage = cfg.use_normalized_advantage
        self.clip_param, self.ppo_epoch = cfg.clip_param, cfg.ppo_epoch
        self.optimizer = torch.optim.Adam(actor_critic.parameters(), lr=cfg.lr, eps=cfg.eps)
        self.init_distributed()

    def update(self, rollouts):
        advantages = self.get_advantages(rollouts)
        for _ in range(self.ppo_epoch):
            for batch in rollouts.recurrent_generator(advantages):
                values, log_probs, entropy = self.actor_critic(batch["obs"], batch["actions"])
                ratio = torch.exp(log_probs - batch["action_log_probs"])
                surr = torch.min(
                    ratio * batch["adv"], ratio.clamp(1 - self.clip_param, 1 + self.clip_param) * batch["adv"]
                )
                loss = -surr.mean() + 0.5 * (values - batch["returns"]).pow(2).mean() - 0.01 * entropy.mean()
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
