# RIGHT: a Trainer whose constructor gets a plain model; build_model wraps afterwards
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build_model(net):
    return FSDP(net)


class LocalTrainer:
    """Tunes the plain embedding on one machine, without ranks."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def step(self, x):
        self.model(x).mean().backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
