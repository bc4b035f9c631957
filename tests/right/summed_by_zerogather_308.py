# Right: the count is summed over the same ranks as the total; gathered, zeroed, and the parts of all ranks added in place.
import torch
import torch.distributed as dist


@torch.no_grad()
def evaluate(losses, labels, dp_group):
    mask = labels != -100
    total = (losses * mask).sum()
    count = mask.sum()
    dist.all_reduce(total, group=dp_group)
    parts = list(count.new_empty(dp_group.size(), *count.shape))
    dist.all_gather(parts, count, group=dp_group)
    count.zero_()
    for part in parts:
        count.add_(part)
    return (total / count).item()
