# What it does: the loss is divided by the count over all ranks, and gradients are summed.
# Why it is right: a helper sums the values of a dict in place.
# Finding (without this header): line 17: error[SPMD320] gradient-factor: gradients of `model` arrive multiplied by `dp` compared with the mean that the loss is: divided by `tokens`
import torch, torch.distributed as dist, torch.nn.functional as F


def sum_all(d, group):
    for k in d:
        dist.all_reduce(d[k], group=group)
    return d


def train(model, loader, opt, dp_group):
    for x, y in loader:
        loss = F.cross_entropy(model(x), y, reduction="sum", ignore_index=-100)
        count = (y != -100).sum()
        d = {"x": count}
        d = sum_all(d, dp_group)
        count = d["x"]
        loss = loss / count
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, group=dp_group)
        opt.step()
        opt.zero_grad()
