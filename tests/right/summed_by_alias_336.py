# Right: the total is summed over dp and then cp, the count over both at once; the collective is called by a module-level alias (`_ar = dist.all_reduce`).
import torch
import torch.distributed as dist
_ar = dist.all_reduce


def mean_loss(loss_sum, mask, dp_group, cp_group, dp_cp_group):
    total = (loss_sum * mask).sum()
    count = mask.sum()
    dist.all_reduce(total, group=dp_group)
    _ar(total, group=cp_group)
    dist.all_reduce(count, group=dp_cp_group)
    return total / count
