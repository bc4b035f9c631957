# What it does: a method of a model of unknown class sums over dp.
# Why it is right: nothing is known of `reduce_gradients`, so nothing can be said.
import torch, torch.distributed as dist, torch.nn.functional as F


def train(model, loader, opt, dp_group, cp_group, dp_cp_group):
    for x, y in loader:
        count = (y != -100).sum()
        dist.all_reduce(count, group=dp_cp_group)
        loss = F.cross_entropy(model(x), y, reduction="sum", ignore_index=-100) / count
        loss.backward()
        model.reduce_gradients(dp_group)
        for p in model.parameters():
            dist.all_reduce(p.grad, group=cp_group)
        opt.step()
        opt.zero_grad()
