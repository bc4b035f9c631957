"""Pipeline schedule with gradient accumulation."""
import torch
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


def build_schedule(stage: PipelineStage, n_microbatches, loss_fn):
    def scaled_loss(pred, target):
        return loss_fn(pred, target) / n_microbatches

    return Schedule1F1B(stage, n_microbatches=n_microbatches, loss_fn=scaled_loss, scale_grads=False)


def train_step(stage, optimizer, batches, accum, n_microbatches, loss_fn):
    schedule = build_schedule(stage, n_microbatches, loss_fn)
    optimizer.zero_grad()
    for i in range(accum):
        inputs, labels = next(batches)
        if stage.is_first:
            schedule.step(inputs)
        elif stage.is_last:
            schedule.step(target=labels)
        else:
            schedule.step()
    optimizer.step()
