# huggingface/trl, pull request 6140 - https://github.com/huggingface/trl/pull/6140 (read: review excerpt)
# The adaptive entropy coefficient compares the mean per-token entropy with a target. It is reduced as the
# mean of the per-process means, which is not the token mean when completions have different lengths.
"""GRPO loss with an adaptive entropy bonus (DAPO normalisation)."""
import torch
from accelerate import Accelerator


class EntropyController:
    def __init__(self, target, coef=0.0, lr=1e-3, max_coef=0.1):
        self.target, self.coef, self.lr, self.max_coef = target, coef, lr, max_coef

    def update(self, entropy):
        step = self.lr if entropy < self.target else -self.lr
        self.coef = min(max(self.coef + step, 0.0), self.max_coef)


class GRPOTrainer:
    def __init__(self, entropy_target):
        self.accelerator = Accelerator()
        self.entropy = EntropyController(entropy_target)

    def compute_loss(self, per_token_loss, entropies, mask, num_items_in_batch):
        # num_items_in_batch: completion tokens on all processes; DDP averages over processes
        normalizer = num_items_in_batch / self.accelerator.num_processes
        loss = (per_token_loss * mask).sum() / normalizer
        entropy_loss = (entropies * mask).sum() / normalizer

        with torch.no_grad():
            local_mean = (entropies * mask).sum() / mask.sum().clamp(min=1.0)
            world_entropy = self.accelerator.reduce(local_mean, reduction="mean")  # BUG: mean of means
        self.entropy.update(world_entropy.item())
        return loss - self.entropy.coef * entropy_loss
