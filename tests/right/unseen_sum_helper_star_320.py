# What it does: the loss is divided by the count over all ranks, and gradients are summed.
# Why it is right: a helper with `*args` sums in place.
# Finding (without this header): line 14: error[SPMD320] gradient-factor: gradients of `model` arrive multiplied by `dp` compared with the mean that the loss is: divided by `tokens`
import torch, torch.distributed as dist, torch.nn.functional as F


def sum_all(group, *ts):
    for t in ts:
        dist.all_reduce(t, group=group)


def train(model, loader, opt, dp_group):
    for x, y in loader:
        loss = F.cross_entropy(model(x), y, reduction="sum", ignore_index=-100)
        count = (y != -100).sum()
        sum_all(dp_group, count)
        loss = loss / count
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, group=dp_group)
        opt.step()
        opt.zero_grad()
