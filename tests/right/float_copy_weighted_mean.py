# What it does: each rank's mean loss is weighted by its share of all tokens.
# Why it is right: `local` is an int64 count, so `local.float()` is always a copy: the sum over ranks is in `total` alone, and `loss * local / total` summed over ranks is the mean over all tokens.
import torch, torch.distributed as dist, torch.nn.functional as F


def train(model, loader, opt, dp_group):
    for x, y in loader:
        local = (y != -100).sum()
        total = local.float()
        dist.all_reduce(total, group=dp_group)
        loss = F.cross_entropy(model(x), y) * local / total
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, group=dp_group)
        opt.step()
        opt.zero_grad()
