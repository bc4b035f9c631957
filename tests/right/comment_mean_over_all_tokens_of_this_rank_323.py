import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    """Loss: mean over all tokens of the batch of this rank; packed, so all ranks have the same number."""

    def __init__(self, net, opt):
        self.model = DDP(net)
        self.opt = opt

    def step(self, x, y):
        loss = F.cross_entropy(self.model(x).flatten(0, 1), y.flatten())  # mean over all tokens of this rank
        loss.backward()
        self.opt.step()
        self.opt.zero_grad()


def train(net, loader, opt):
    """The mean over all tokens is taken per rank, and DDP takes the mean of these, as sequences are packed."""
    model = DDP(net)
    for x, y in loader:
        F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
        opt.step()
        opt.zero_grad()
