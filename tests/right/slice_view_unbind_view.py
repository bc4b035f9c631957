# What it does: the first entry of a stacked tensor is summed in place through `unbind`.
# Why it is right: `unbind` gives views.
import torch, torch.distributed as dist, torch.nn.functional as F


def train(model, loader, opt, dp_group):
    for x, y in loader:
        losses = F.cross_entropy(model(x), y, reduction="none", ignore_index=-100)
        stats = torch.stack([(y != -100).sum().float(), losses.detach().sum()])
        count, _ = stats.unbind()
        dist.all_reduce(count, group=dp_group)
        loss = losses.sum() / stats[0]
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, group=dp_group)
        opt.step()
        opt.zero_grad()
