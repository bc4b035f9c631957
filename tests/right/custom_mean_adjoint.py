"""Mean over ranks as an autograd function whose backward is again a mean."""
import torch
import torch.distributed as dist
import torch.nn as nn


class MeanOverRanks(torch.autograd.Function):
    """y = mean of x; each rank uses y for itself, so the gradient is the mean of the gradients."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        ctx.n = dist.get_world_size(group)
        y = x / ctx.n
        dist.all_reduce(y, group=group)
        return y

    @staticmethod
    def backward(ctx, grad):
        grad = grad / ctx.n
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class CrossBatchVariance(nn.Module):
    """VICReg's variance and covariance terms on statistics of the global batch."""

    def __init__(self, group, gamma=1.0):
        super().__init__()
        self.group, self.gamma = group, gamma

    def forward(self, z):
        mean = MeanOverRanks.apply(z.mean(0), self.group)
        second = MeanOverRanks.apply((z - mean).t() @ (z - mean) / len(z), self.group)
        std = (second.diagonal() + 1e-4).sqrt()
        variance = torch.relu(self.gamma - std).mean()
        off = second - torch.diag(second.diagonal())
        return variance + off.pow(2).sum() / z.shape[1]


def train(model, loader, optimizer, group):
    # DDP averages; every rank computes the same regulariser, its gradient flows to all ranks' batches
    criterion = CrossBatchVariance(group)
    for a, b in loader:
        za, zb = model(a), model(b)
        loss = (za - zb).pow(2).mean() + criterion(za) + criterion(zb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
