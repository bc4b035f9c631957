# What it does: the loss is divided by the count over all ranks, and gradients are summed.
# Why it is right: a reduce and a broadcast are an all-reduce.
# Finding (without this header): line 11: error[SPMD320] gradient-factor: gradients of `model` arrive multiplied by `dp` compared with the mean that the loss is: divided by `tokens`
import torch, torch.distributed as dist, torch.nn.functional as F


def train(model, loader, opt, dp_group):
    for x, y in loader:
        loss = F.cross_entropy(model(x), y, reduction="sum", ignore_index=-100)
        count = (y != -100).sum()
        root = dist.get_global_rank(dp_group, 0)
        dist.reduce(count, dst=root, group=dp_group)
        dist.broadcast(count, src=root, group=dp_group)
        loss = loss / count
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, group=dp_group)
        opt.step()
        opt.zero_grad()
