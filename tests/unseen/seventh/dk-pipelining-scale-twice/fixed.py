"""One pipeline stage driven by torch.distributed.pipelining."""
import torch.nn.functional as F
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


def build_schedule(module, stage_index, num_stages, device, pp_group, n_microbatches):
    stage = PipelineStage(module, stage_index, num_stages, device, group=pp_group)

    def loss_fn(logits, labels):
        loss = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
        return loss

    return Schedule1F1B(
        stage,
        n_microbatches=n_microbatches,
        loss_fn=loss_fn,
        scale_grads=True,
    )


def train_step(schedule, stage_index, num_stages, inputs, labels, optimizer):
    optimizer.zero_grad()
    losses = []
    if stage_index == 0:
        schedule.step(inputs)
    elif stage_index == num_stages - 1:
        schedule.step(target=labels, losses=losses)
    else:
        schedule.step()
    optimizer.step()
    return losses
