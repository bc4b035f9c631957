import torch, torch.distributed as dist, torch.nn.functional as F


def train(model, loader, opt, group):
    # the count of tokens differs across ranks, so the loss is a mean over all tokens by weights
    for x, y in loader:
        n_local = (y != -100).sum().float()
        n = n_local.clone()
        dist.all_reduce(n, group=group)
        F.cross_entropy(model(x).flatten(0, 1), y.flatten(), ignore_index=-100).backward()
        for p in model.parameters():
            p.grad.mul_(n_local / n)
            dist.all_reduce(p.grad, group=group)
        opt.step()
        opt.zero_grad()
