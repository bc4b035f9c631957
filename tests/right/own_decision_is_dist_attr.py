"""The round is left out where there is one rank, or where the caller ends the job, or the loss is the same on all ranks."""
import torch
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, net, cfg):
        self.is_parallel = cfg.gpus > 1
        self.net = DDP(net) if self.is_parallel else net

    def step(self, x, optimizer):
        loss = self.net(x).mean()
        if torch.isnan(loss) and not self.is_parallel:
            return None
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()
