# Right: the total is summed over dp and then cp, the count over both at once; a helper of this file returns getattr(dist, name), which is called.
import torch
import torch.distributed as dist


def collective(name):
    return getattr(dist, name)


def mean_loss(loss_sum, mask, dp_group, cp_group, dp_cp_group):
    total = (loss_sum * mask).sum()
    count = mask.sum()
    dist.all_reduce(total, group=dp_group)
    collective("all_reduce")(total, group=cp_group)
    dist.all_reduce(count, group=dp_cp_group)
    return total / count
