"""Every backward pass sums, or what the rounds without the flag leave is dropped."""
import torch.distributed as dist
import torch.nn as nn


class GradReducer:
    def __init__(self, module, group=None):
        self.group = group
        self.needs_reduce = dist.is_initialized() and dist.get_world_size(group) > 1
        for p in module.parameters():
            p.register_hook(self._reduce)

    def _reduce(self, grad):
        if self.needs_reduce:
            dist.all_reduce(grad, op=dist.ReduceOp.AVG, group=self.group)
        return grad


class MetricReducer:
    def __init__(self, group=None):
        self.group = group
        self.needs_reduce = dist.is_initialized() and dist.get_world_size(group) > 1

    def mean(self, value):
        if self.needs_reduce:
            dist.all_reduce(value, op=dist.ReduceOp.AVG, group=self.group)
        return value


def train(model, loader, optimizer):
    GradReducer(model)
    metrics = MetricReducer()
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(metrics.mean(loss.detach().clone()).item())
