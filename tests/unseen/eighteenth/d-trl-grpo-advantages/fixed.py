"""Score completions and compute group-relative advantages over all processes.

Source: GRPOTrainer of trl (from memory). The rewards of all processes are gathered, because a
group of completions may lie on several of them. After that each process has to take its own part;
all take the first one here and train their completions with the advantages of process 0.
"""
import torch
from accelerate import Accelerator
from accelerate.utils import gather


class GRPOTrainer:
    def __init__(self, model, optimizer, reward_funcs, reward_weights, num_generations):
        self.accelerator = Accelerator()
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)
        self.reward_funcs, self.num_generations = reward_funcs, num_generations
        self.reward_weights = torch.tensor(reward_weights, device=self.accelerator.device)

    def score(self, prompts, completions):
        device = self.accelerator.device
        rewards_per_func = torch.zeros(len(prompts), len(self.reward_funcs), device=device)
        for i, func in enumerate(self.reward_funcs):
            rewards = func(prompts=prompts, completions=completions)
            rewards_per_func[:, i] = torch.tensor(rewards, dtype=torch.float32, device=device)

        rewards_per_func = gather(rewards_per_func)
        rewards = (rewards_per_func * self.reward_weights).nansum(dim=1)
        grouped = rewards.view(-1, self.num_generations)
        mean = grouped.mean(dim=1).repeat_interleave(self.num_generations)
        std = grouped.std(dim=1).repeat_interleave(self.num_generations)
        advantages = (rewards - mean) / (std + 1e-4)

        process_slice = slice(
            self.accelerator.process_index * len(prompts),
            (self.accelerator.process_index + 1) * len(prompts),
        )
        return advantages[process_slice], rewards.mean().item()

    def step(self, inputs):
        # each process has the same number of completions
        advantages, mean_reward = self.score(inputs["prompts"], inputs["completions"])
        logits = self.model(inputs["input_ids"]).logits[:, :-1]
        logps = torch.log_softmax(logits.float(), dim=-1)
        logps = logps.gather(-1, inputs["input_ids"][:, 1:].unsqueeze(-1)).squeeze(-1)
        mask = inputs["completion_mask"][:, 1:]
        ratio = torch.exp(logps - logps.detach())
        loss = -((ratio * advantages.unsqueeze(1) * mask).sum(1) / mask.sum(1).clamp(min=1)).mean()
        self.accelerator.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach(), mean_reward
