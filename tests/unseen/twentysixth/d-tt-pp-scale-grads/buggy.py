# torchtitan 3e1b843ec (#1732)
"""Pipeline schedule used with gradient accumulation."""
import functools

import torch
from torch.distributed.pipelining.schedules import PipelineScheduleMulti, get_schedule_class


def rescale_accumulated_loss(unwrapped_loss_fn, accumulation_steps):
    @functools.wraps(unwrapped_loss_fn)
    def accumulated_loss_fn(*args, **kwargs):
        return unwrapped_loss_fn(*args, **kwargs) / accumulation_steps

    return accumulated_loss_fn


def build_pipeline_schedule(job_config, stages, loss_fn):
    schedule_class = get_schedule_class(job_config.parallelism.pipeline_parallel_schedule)
    looped_schedule = issubclass(schedule_class, PipelineScheduleMulti)
    n_microbatches = job_config.training.local_batch_size // job_config.parallelism.pipeline_parallel_microbatch_size
    return schedule_class(
        stages if looped_schedule else stages[0],
        n_microbatches=n_microbatches,
        loss_fn=loss_fn,  # BUG: every step() divides all accumulated gradients by n_microbatches
    )


def train_step(job_config, stages, mean_loss, data_iterator, optimizers, has_first, has_last):
    steps = job_config.training.gradient_accumulation_steps
    loss_fn = rescale_accumulated_loss(mean_loss, steps)
    pp_schedule = build_pipeline_schedule(job_config, stages, loss_fn)
    optimizers.zero_grad()
    for _ in range(steps):
        inputs, labels = next(data_iterator)
        targets, losses = (labels, []) if has_last else (None, None)
        if has_first:
            pp_schedule.step(inputs, target=targets, losses=losses)
        else:
            pp_schedule.step(target=targets, losses=losses)
    optimizers.step()
