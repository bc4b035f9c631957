"""Summed token loss, with and without pipeline parallelism."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.pipelining import ScheduleGPipe


def sum_loss(pred, labels):
    return F.cross_entropy(pred.flatten(0, 1).float(), labels.flatten(0, 1), reduction="sum")


class Trainer:
    def __init__(self, stage, model, n_microbatches, dp_group, use_pp):
        self.model, self.dp_group, self.use_pp, self.tokens = model, dp_group, use_pp, None
        if use_pp:
            self.schedule = ScheduleGPipe(
                stage, n_microbatches, loss_fn=lambda p, t: sum_loss(p, t) / self.tokens, scale_grads=False
            )

    def step(self, inputs, labels):
        tokens = (labels != -100).sum()
        dist.all_reduce(tokens, group=self.dp_group)
        self.tokens = tokens
        if self.use_pp:
            losses = []
            self.schedule.step(inputs, target=labels, losses=losses)
            return torch.stack(losses).sum()
        loss = sum_loss(self.model(inputs), labels) / tokens
        loss.backward()
        return loss
