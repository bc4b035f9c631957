# thread: none (from memory of TRL)
"""Group-relative policy optimisation on plain data-parallel workers."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.utils.data import Dataset
from torch.utils.data.distributed import DistributedSampler


class RepeatedPrompts(Dataset):
    """Each prompt stands num_generations times in a row, after an epoch's shuffle."""

    def __init__(self, prompts, num_generations, seed):
        self.prompts, self.repeat, self.seed = prompts, num_generations, seed
        self.set_epoch(0)

    def set_epoch(self, epoch):
        generator = torch.Generator().manual_seed(self.seed + epoch)
        self.order = torch.randperm(len(self.prompts), generator=generator).tolist()

    def __len__(self):
        return len(self.prompts) * self.repeat

    def __getitem__(self, index):
        return self.prompts[self.order[index // self.repeat]]


def make_sampler(dataset):
    return DistributedSampler(dataset, shuffle=False, drop_last=True)


def gather_in_sample_order(local):
    """The sampler deals samples out in turn: rank, rank + world, ..."""
    world = dist.get_world_size()
    parts = [torch.empty_like(local) for _ in range(world)]
    dist.all_gather(parts, local.contiguous())
    return torch.stack(parts, dim=1).reshape(-1)


def keep_own(everything):
    return everything[dist.get_rank() :: dist.get_world_size()]


class GRPOTrainer:
    """world * batch size is a multiple of num_generations; prompts fill whole batches."""

    def __init__(self, model, generate, reward_fn, optimizer, cfg):
        self.model, self.generate, self.reward_fn = model, generate, reward_fn
        self.optimizer, self.cfg = optimizer, cfg

    def advantages(self, rewards):
        groups = gather_in_sample_order(rewards).view(-1, self.cfg.num_generations)
        mean, std = groups.mean(dim=1, keepdim=True), groups.std(dim=1, keepdim=True)
        return keep_own(((groups - mean) / (std + 1e-4)).flatten())

    def logprobs(self, ids):
        logits = self.model(ids).logits[:, :-1].float()
        return -F.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")

    def step(self, prompts):
        ids, completion_mask = self.generate(self.model, prompts)
        rewards = self.reward_fn(prompts, ids)
        advantages = self.advantages(rewards).unsqueeze(1)
        mask = completion_mask[:, 1:].float()
        with torch.no_grad():
            old = self.logprobs(ids)
        tokens = mask.sum()
        dist.all_reduce(tokens)
        for _ in range(self.cfg.iterations):
            ratio = (self.logprobs(ids) - old).exp()
            clipped = ratio.clamp(1 - self.cfg.clip, 1 + self.cfg.clip)
            per_token = -torch.min(ratio * advantages, clipped * advantages)
            loss = (per_token * mask).sum() / tokens * dist.get_world_size()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg.max_grad_norm)
            self.optimizer.step()
            self.optimizer.zero_grad()
        return rewards.mean()
