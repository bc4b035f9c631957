"""PPO actor loop with a replay buffer that is filled from filtered rollouts.

OpenRLHF/OpenRLHF 2f83bc19f93a, openrlhf/trainer/ray/ppo_actor.py
"""
import torch
import torch.distributed as dist


class Strategy:
    def all_gather(self, data):
        data = torch.tensor([data], device="cuda")
        ret = [torch.zeros_like(data) for _ in range(dist.get_world_size())]
        dist.all_gather(ret, data)
        return torch.cat(ret)

    def all_reduce_mean(self, x):
        dist.all_reduce(x)
        return x / dist.get_world_size()


class ActorPPOTrainer:
    def __init__(self, strategy, actor, optim, experience_maker, replay_buffer, prompts_dataloader):
        self.strategy, self.actor, self.optim = strategy, actor, optim
        self.experience_maker, self.replay_buffer = experience_maker, replay_buffer
        self.prompts_dataloader = prompts_dataloader

    def normalize_advantages(self):
        adv = torch.cat([item.advantages for item in self.replay_buffer.items])
        mean = self.strategy.all_reduce_mean(adv.mean())
        for item in self.replay_buffer.items:
            item.advantages = item.advantages - mean

    def ppo_train(self):
        # self.actor is a DeepSpeed engine over all ranks
        for item in self.replay_buffer.items:
            loss = self.actor(item)
            self.actor.backward(loss)
            self.actor.step()

    def fit(self, max_steps, **generate_kwargs):
        steps = 1
        while steps <= max_steps:
            for _, rand_prompts, labels in self.prompts_dataloader:
                # this rank's rollouts; those with a zero advantage are filtered out
                for experience in self.experience_maker.make_experience_list(rand_prompts, labels, **generate_kwargs):
                    self.replay_buffer.append(experience)

                if not self.replay_buffer.full():  # BUG
                    continue

                self.normalize_advantages()
                self.ppo_train()
                self.replay_buffer.clear()
                steps = steps + 1
