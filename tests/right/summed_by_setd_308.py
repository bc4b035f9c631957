# Right: the count is summed over the same ranks as the total; a float copy is summed and put back by `.data =`.
import torch
import torch.distributed as dist


@torch.no_grad()
def evaluate(losses, labels, dp_group):
    mask = labels != -100
    total = (losses * mask).sum()
    count = mask.sum()
    dist.all_reduce(total, group=dp_group)
    tmp = count.float().contiguous()
    dist.all_reduce(tmp, group=dp_group)
    count.data = tmp.to(count.dtype)
    return (total / count).item()
