"""Pipeline schedule with gradient accumulation."""
import torch
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


def build_schedule(stage: PipelineStage, n_microbatches, loss_fn):
    return Schedule1F1B(stage, n_microbatches=n_microbatches, loss_fn=loss_fn)


def train_step(stage, optimizer, batches, accum, n_microbatches, loss_fn):
    schedule = build_schedule(stage, n_microbatches, loss_fn)
    optimizer.zero_grad()
    for i in range(accum):
        inputs, labels = next(batches)
        if stage.is_first:
            schedule.step(inputs)  # BUG: every step divides the gradients accumulated so far
        elif stage.is_last:
            schedule.step(target=labels)
        else:
            schedule.step()
    optimizer.step()
