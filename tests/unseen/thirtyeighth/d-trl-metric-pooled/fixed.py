"""Metrics of the GRPO loss."""
# thread: huggingface/trl#6380
from collections import defaultdict

import torch
from accelerate import Accelerator


class GRPOTrainer:
    def __init__(self, model, accelerator: Accelerator, beta, epsilon_low, epsilon_high):
        self.model = model
        self.accelerator = accelerator
        self.beta = beta
        self.epsilon_low = epsilon_low
        self.epsilon_high = epsilon_high
        self._metrics = {"train": defaultdict(list), "eval": defaultdict(list)}

    def _global_token_mean(self, x, completion_mask):
        """Mean of a per-token quantity over all completion tokens of all processes."""
        totals = torch.stack([(x * completion_mask).sum(), completion_mask.sum().to(x.dtype)])
        totals = self.accelerator.reduce(totals.detach(), reduction="sum")
        return (totals[0] / totals[1].clamp(min=1.0)).item()

    def _compute_loss(self, inputs):
        completion_mask = inputs["completion_mask"]
        advantages = inputs["advantages"].unsqueeze(1)
        per_token_logps, entropies = self._get_per_token_logps_and_entropies(self.model, inputs)

        log_ratio = per_token_logps - inputs["old_per_token_logps"]
        coef_1 = torch.exp(log_ratio)
        coef_2 = torch.clamp(coef_1, 1 - self.epsilon_low, 1 + self.epsilon_high)
        per_token_loss = -torch.min(coef_1 * advantages, coef_2 * advantages)
        per_token_kl = None
        if self.beta != 0.0:
            ref_logps = inputs["ref_per_token_logps"]
            per_token_kl = torch.exp(ref_logps - per_token_logps) - (ref_logps - per_token_logps) - 1
            per_token_loss = per_token_loss + self.beta * per_token_kl

        # tokens of the generation batch over all processes and accumulation steps
        normalizer = inputs["num_items_in_batch"] / self.accelerator.num_processes
        loss = (per_token_loss * completion_mask).sum() / normalizer

        mode = "train" if self.model.training else "eval"
        if self.beta != 0.0:
            self._metrics[mode]["kl"].append(self._global_token_mean(per_token_kl, completion_mask))
        self._metrics[mode]["entropy"].append(self._global_token_mean(entropies, completion_mask))
        is_low_clipped = (coef_1 < 1 - self.epsilon_low) & (advantages < 0)
        is_high_clipped = (coef_1 > 1 + self.epsilon_high) & (advantages > 0)
        for name, clipped in (("low", is_low_clipped), ("high", is_high_clipped)):
            ratio = self._global_token_mean(clipped.float(), completion_mask)
            self._metrics[mode][f"clip_ratio/{name}_mean"].append(ratio)
        return loss
