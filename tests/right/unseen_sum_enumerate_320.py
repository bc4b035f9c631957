# What it does: gradients are summed over dp and over cp.
# Why it is right: a loop over `enumerate`.
# Finding (without this header): line 9: error[SPMD320] gradient-factor: gradients of `model` arrive divided by `cp` compared with the mean that the loss is: divided by `cp*dp*tokens`
import torch, torch.distributed as dist, torch.nn.functional as F


def train(model, loader, opt, dp_group, cp_group, dp_cp_group):
    for x, y in loader:
        loss = F.cross_entropy(model(x), y, reduction="sum", ignore_index=-100)
        count = (y != -100).sum()
        dist.all_reduce(count, group=dp_cp_group)
        loss = loss / count
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, group=dp_group)
            for i, t in enumerate([p.grad]):
                dist.all_reduce(t, group=cp_group)
        opt.step()
        opt.zero_grad()
