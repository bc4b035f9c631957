"""DDP and gradients scaled by hand."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, model, optimizer, device):
        self.model = DDP(model, device_ids=[device])
        self.optimizer = optimizer

    def step(self, batch):
        # the loss is the mean over the samples of this rank
        loss = self.model(**batch).loss
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
