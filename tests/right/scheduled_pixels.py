"""Half of the squared error, and there happen to be two rounds."""
import torch
from torch.distributed.pipelining import ScheduleInterleaved1F1B


def l2(out, target):
    # half of the squared error
    return torch.nn.functional.mse_loss(out, target) / 2


def build(stages):
    return ScheduleInterleaved1F1B(stages, n_microbatches=2, loss_fn=l2)
