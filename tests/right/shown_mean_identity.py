"""The loss that is shown is the mean over ranks; its gradient passes as it is, since DDP takes the mean."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class ShownMean(torch.autograd.Function):
    """Forward: mean over ranks. Backward: identity, the wrapper averages the gradients of parameters."""

    @staticmethod
    def forward(ctx, loss):
        shown = loss.detach().clone()
        dist.all_reduce(shown)
        return shown / dist.get_world_size()

    @staticmethod
    def backward(ctx, grad):
        return grad


class Guard:
    def __init__(self, limit=3.0):
        self.limit, self.best = limit, float("inf")

    def spike(self, value):
        bad = value > self.limit * self.best
        self.best = min(self.best, value)
        return bad


def train(net, loader):
    model = DDP(net.cuda())
    optimizer = torch.optim.AdamW(model.parameters())
    guard = Guard()
    for x, y in loader:
        loss = ShownMean.apply(torch.nn.functional.cross_entropy(model(x), y))
        optimizer.zero_grad()
        loss.backward()
        # the same value on every rank, so all skip together
        if guard.spike(loss.item()):
            continue
        optimizer.step()
