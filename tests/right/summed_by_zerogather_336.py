# Right: the total is summed over dp and then cp, the count over both at once; gathered, zeroed, and the parts of all ranks added in place.
import torch
import torch.distributed as dist


def mean_loss(loss_sum, mask, dp_group, cp_group, dp_cp_group):
    total = (loss_sum * mask).sum()
    count = mask.sum()
    dist.all_reduce(total, group=dp_group)
    parts = list(total.new_empty(cp_group.size(), *total.shape))
    dist.all_gather(parts, total, group=cp_group)
    total.zero_()
    for part in parts:
        total.add_(part)
    dist.all_reduce(count, group=dp_cp_group)
    return total / count
