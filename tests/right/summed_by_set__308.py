# Right: the count is summed over the same ranks as the total; a clone is summed and put back by `set_`.
import torch
import torch.distributed as dist


@torch.no_grad()
def evaluate(losses, labels, dp_group):
    mask = labels != -100
    total = (losses * mask).sum()
    count = mask.sum()
    dist.all_reduce(total, group=dp_group)
    tmp = count.clone()
    dist.all_reduce(tmp, group=dp_group)
    count.set_(tmp)
    return (total / count).item()
