# Right: the count is summed over the same ranks as the total; the collective is called by a module-level alias (`_ar = dist.all_reduce`).
import torch
import torch.distributed as dist
_ar = dist.all_reduce


@torch.no_grad()
def evaluate(losses, labels, dp_group):
    mask = labels != -100
    total = (losses * mask).sum()
    count = mask.sum()
    dist.all_reduce(total, group=dp_group)
    _ar(count, group=dp_group)
    return (total / count).item()
