# Reduces torchtitan's build_pipeline_schedule: the loss of a micro-batch is already divided by the number of
# micro-batches, and the schedule divides the accumulated gradients by it a second time.
import functools

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


def cross_entropy_loss(pred, labels):
    return torch.nn.functional.cross_entropy(pred.flatten(0, 1).float(), labels.flatten(0, 1))


def rescale_accumulated_loss(loss_fn, accumulation_steps):
    @functools.wraps(loss_fn)
    def wrapped(*args):
        return loss_fn(*args) / accumulation_steps

    return wrapped


def build_schedule(job_config, stage):
    n_microbatches = job_config.local_batch_size // job_config.microbatch_size
    loss_fn = rescale_accumulated_loss(cross_entropy_loss, n_microbatches)
    return Schedule1F1B(stage, n_microbatches=n_microbatches, loss_fn=loss_fn, scale_grads=False)


class PipelineTrainer:
    def __init__(self, job_config, stage_module, device, pp_group):
        self.rank, self.size = dist.get_rank(pp_group), dist.get_world_size(pp_group)
        stage = PipelineStage(stage_module, self.rank, self.size, device, group=pp_group)
        self.schedule = build_schedule(job_config, stage)
        self.optimizer = torch.optim.AdamW(stage_module.parameters(), lr=job_config.lr)

    def train_step(self, inputs, labels):
        self.optimizer.zero_grad()
        losses = []
        if self.rank == 0:
            self.schedule.step(inputs)
        elif self.rank == self.size - 1:
            self.schedule.step(target=labels, losses=losses)
        else:
            self.schedule.step()
        self.optimizer.step()
        return torch.stack(losses).sum().detach() if losses else None
