"""Trainer with gradient accumulation around a pipeline schedule."""
# Source: pytorch/torchtitan pull request 1732 (confirmed from the thread)
import functools

import torch
import torch.nn.functional as F
from torch.distributed.pipelining import Schedule1F1B


def cross_entropy_loss(pred, labels):
    return F.cross_entropy(pred.flatten(0, 1).float(), labels.flatten(0, 1))


def rescale_accumulated_loss(unwrapped_loss_fn, accumulation_steps):
    """Mean loss over accumulation steps."""

    @functools.wraps(unwrapped_loss_fn)
    def accumulated_loss_fn(*args, **kwargs):
        return unwrapped_loss_fn(*args, **kwargs) / accumulation_steps

    return accumulated_loss_fn


class Trainer:
    def __init__(self, config, stage, optimizer, dataloader):
        self.config, self.stage = config, stage
        self.optimizer, self.dataloader = optimizer, dataloader
        self.gradient_accumulation_steps = config.global_batch_size // (
            config.local_batch_size * config.dp_degree
        )
        n_microbatches = config.local_batch_size // config.pp_microbatch_size
        loss_fn = rescale_accumulated_loss(
            cross_entropy_loss, self.gradient_accumulation_steps * n_microbatches
        )
        self.pp_schedule = Schedule1F1B(stage, n_microbatches, loss_fn=loss_fn, scale_grads=False)

    def forward_backward_step(self, input_ids, labels):
        targets, losses = (labels, []) if self.stage.is_last else (None, None)
        if self.stage.is_first:
            self.pp_schedule.step(input_ids, target=targets, losses=losses)
        else:
            self.pp_schedule.step(target=targets, losses=losses)
        return losses

    def train_step(self, data_iterator):
        self.optimizer.zero_grad()
        for _ in range(self.gradient_accumulation_steps):
            input_ids, labels = next(data_iterator)
            self.forward_backward_step(input_ids.cuda(), labels.cuda())
        self.optimizer.step()
