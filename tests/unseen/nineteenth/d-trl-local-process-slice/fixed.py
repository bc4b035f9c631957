"""Advantages of a GRPO batch gathered over all processes (written from memory of huggingface/trl)."""
import torch
from accelerate import Accelerator
from accelerate.utils import gather


class GRPOTrainer:
    def __init__(self, model, reward_funcs, reward_weights, num_generations):
        self.accelerator = Accelerator()
        self.model = self.accelerator.prepare(model)
        self.reward_funcs = reward_funcs
        self.reward_weights = torch.tensor(reward_weights, device=self.accelerator.device)
        self.num_generations = num_generations

    def _calculate_rewards(self, prompts, completions):
        device = self.accelerator.device
        rewards = torch.zeros(len(prompts), len(self.reward_funcs), device=device)
        for i, func in enumerate(self.reward_funcs):
            rewards[:, i] = torch.tensor(func(prompts, completions), dtype=torch.float32, device=device)
        # the completions of one prompt may be spread over several processes
        return gather(rewards)

    def _compute_advantages(self, prompts, completions):
        rewards_per_func = self._calculate_rewards(prompts, completions)
        rewards = (rewards_per_func * self.reward_weights.unsqueeze(0)).nansum(dim=1)
        grouped = rewards.view(-1, self.num_generations)
        mean = grouped.mean(dim=1).repeat_interleave(self.num_generations, dim=0)
        std = grouped.std(dim=1).repeat_interleave(self.num_generations, dim=0)
        advantages = (rewards - mean) / (std + 1e-4)

        # keep the part of this process
        index = self.accelerator.process_index
        process_slice = slice(index * len(prompts), (index + 1) * len(prompts))
        return advantages[process_slice]

    def compute_loss(self, prompts, completions, input_ids, mask):
        advantages = self._compute_advantages(prompts, completions)
        logps = self.model(input_ids)
        per_token_loss = -torch.exp(logps - logps.detach()) * advantages.unsqueeze(1)
        return ((per_token_loss * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).mean()
