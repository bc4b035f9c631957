import torch
import torch.distributed as dist


def both(losses, labels, dp_group):
    mask = labels != -100
    total = (losses * mask).sum()
    count = mask.sum()
    local = total.item() / count.item()
    dist.all_reduce(total, group=dp_group)
    n = count.clone()
    dist.all_reduce(n, group=dp_group)
    return local, total / n, n / count
