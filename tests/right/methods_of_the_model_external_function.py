# What it does: a function outside the project sums over dp.
# Why it is right: nothing is known of `reduce_gradients`.
import torch, torch.distributed as dist, torch.nn.functional as F
from mylib import reduce_gradients


def train(model, loader, opt, dp_group, cp_group, dp_cp_group):
    for x, y in loader:
        count = (y != -100).sum()
        dist.all_reduce(count, group=dp_cp_group)
        loss = F.cross_entropy(model(x), y, reduction="sum", ignore_index=-100) / count
        loss.backward()
        reduce_gradients(model, dp_group)
        for p in model.parameters():
            dist.all_reduce(p.grad, group=cp_group)
        opt.step()
        opt.zero_grad()
