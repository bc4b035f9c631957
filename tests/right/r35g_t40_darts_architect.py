import torch
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from comm import mean_over_ranks


class Architect:
    """Second-order DARTS: the weights are moved by a small step, looked at, and moved back."""

    def __init__(self, net, alphas, criterion, rank):
        self.model = DDP(net.cuda(rank))
        self.alphas = alphas
        self.criterion = criterion
        self.optimizer = torch.optim.Adam(alphas, lr=3e-4)

    def hessian_vector(self, x, y, xv, yv, r=1e-2):
        vector = torch.autograd.grad(self.criterion(self.model(xv), yv), list(self.model.parameters()))
        eps = r / torch.cat([v.flatten() for v in vector]).norm()
        for p, v in zip(self.model.parameters(), vector):
            p.data.add_(eps * v)
        up = torch.autograd.grad(self.criterion(self.model(x), y), self.alphas)
        for p, v in zip(self.model.parameters(), vector):
            p.data.sub_(2 * eps * v)
        down = torch.autograd.grad(self.criterion(self.model(x), y), self.alphas)
        for p, v in zip(self.model.parameters(), vector):
            p.data.add_(eps * v)
        return [(a - b) / (2 * eps) for a, b in zip(up, down)]

    def step(self, batch, lr):
        implicit = self.hessian_vector(*batch)
        for a, g in zip(self.alphas, implicit):
            a.grad = -lr * mean_over_ranks(g)
        self.optimizer.step()
