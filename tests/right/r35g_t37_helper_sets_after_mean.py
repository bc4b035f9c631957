import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

from collective_ops import pmean


def set_grads(params, grads):
    for p, g in zip(params, grads):
        p.grad = pmean(g)


class Learner:
    def __init__(self, net, rank):
        self.model = DDP(net.cuda(rank))
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def learn(self, loader):
        for x, y in loader:
            grads = torch.autograd.grad(F.mse_loss(self.model(x), y), list(self.model.parameters()))
            set_grads(self.model.parameters(), grads)
            self.optimizer.step()
