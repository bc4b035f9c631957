"""Build a pipeline schedule (torchtitan pipeline_parallel)."""
import functools

from torch.distributed.pipelining.schedules import (
    PipelineScheduleMulti,
    PipelineScheduleSingle,
    get_schedule_class,
)


def rescale_accumulated_loss(unwrapped_loss_fn, accumulation_steps):
    @functools.wraps(unwrapped_loss_fn)
    def accumulated_loss(*args, **kwargs):
        return unwrapped_loss_fn(*args, **kwargs) / accumulation_steps

    return accumulated_loss


def build_pipeline_schedule(job_config, stages, loss_fn):
    schedule_class = get_schedule_class(job_config.parallelism.pipeline_parallel_schedule)
    looped_schedule = issubclass(schedule_class, PipelineScheduleMulti)
    if not looped_schedule:
        assert issubclass(schedule_class, PipelineScheduleSingle)

    microbatch_size = job_config.parallelism.pipeline_parallel_microbatch_size
    batch_size = job_config.training.local_batch_size
    if batch_size % microbatch_size != 0:
        raise ValueError(f"Batch size {batch_size} must be divisible by {microbatch_size}.")
    n_microbatches = batch_size // microbatch_size

    return schedule_class(
        stages if looped_schedule else stages[0],
        n_microbatches=n_microbatches,
        loss_fn=rescale_accumulated_loss(loss_fn, n_microbatches),  # BUG: the schedule divides by n_microbatches too
    )
