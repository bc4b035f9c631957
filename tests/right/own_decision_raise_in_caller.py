"""The round is left out where there is one rank, or where the caller ends the job, or the loss is the same on all ranks."""
import torch
from torch.nn.parallel import DistributedDataParallel as DDP


class DivergedError(RuntimeError):
    pass


class Engine:
    def __init__(self, net, optimizer, device):
        self.net = DDP(net, device_ids=[device])
        self.optimizer = optimizer

    def update(self, x, y):
        loss = torch.nn.functional.mse_loss(self.net(x), y)
        if loss.item() > 1e4:
            return False, loss
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return True, loss

    def run(self, loader):
        for i, (x, y) in enumerate(loader):
            ok, loss = self.update(x, y)
            if not ok:
                raise DivergedError(f"step {i}: {loss.item()}")
