# Right: the count is summed over the same ranks as the total; summed in place by list(map(partial(dist.all_reduce, ...), [t])).
from functools import partial
import torch
import torch.distributed as dist


@torch.no_grad()
def evaluate(losses, labels, dp_group):
    mask = labels != -100
    total = (losses * mask).sum()
    count = mask.sum()
    dist.all_reduce(total, group=dp_group)
    list(map(partial(dist.all_reduce, group=dp_group), [count]))
    return (total / count).item()
