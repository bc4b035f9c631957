# What it does: the loss is divided by the count over all ranks, and gradients are summed.
# Why it is right: a static method sums in place.
# Finding (without this header): line 15: error[SPMD320] gradient-factor: gradients of `model` arrive multiplied by `dp` compared with the mean that the loss is: divided by `tokens`
import torch, torch.distributed as dist, torch.nn.functional as F


class Comm:
    @staticmethod
    def sum_(t, group):
        dist.all_reduce(t, group=group)


def train(model, loader, opt, dp_group):
    for x, y in loader:
        loss = F.cross_entropy(model(x), y, reduction="sum", ignore_index=-100)
        count = (y != -100).sum()
        Comm.sum_(count, dp_group)
        loss = loss / count
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, group=dp_group)
        opt.step()
        opt.zero_grad()
