"""The round is left out where there is one rank, or where the caller ends the job, or the loss is the same on all ranks."""
import sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, model, optimizer, device):
        self.model = DDP(model.to(device), device_ids=[device])
        self.optimizer = optimizer
        self.device = device

    def train_step(self, batch):
        out = self.model(batch["input_ids"].to(self.device))
        loss = torch.nn.functional.cross_entropy(out.flatten(0, 1), batch["labels"].to(self.device).flatten())
        if not torch.isfinite(loss):
            return None
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def fit(self, loader):
        for step, batch in enumerate(loader):
            loss = self.train_step(batch)
            if loss is None:
                print(f"non-finite loss at step {step}, aborting")
                sys.exit(1)
