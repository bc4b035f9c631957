"""Pipeline schedule with gradient accumulation (pytorch/torchtitan#1732)."""
import torch.nn.functional as F
from torch.distributed.pipelining import Schedule1F1B


def build_pipeline_schedule(stage, n_microbatches, accumulation_steps):
    def loss_fn(logits, labels):
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(0, 1)) / accumulation_steps

    return Schedule1F1B(  # BUG: scale_grads is on, each step() rescales what was accumulated before
        stage,
        n_microbatches=n_microbatches,
        loss_fn=loss_fn,
    )


def train_step(schedule, optimizer, data_iterator, accumulation_steps, is_first, is_last):
    optimizer.zero_grad()
    for _ in range(accumulation_steps):
        ids, labels = next(data_iterator)
        losses = [] if is_last else None
        args = (ids,) if is_first else ()
        schedule.step(*args, target=labels if is_last else None, losses=losses)
    optimizer.step()
