# Right: the total is summed over dp and then cp, the count over both at once; summed in place in a list comprehension over a tuple that holds the tensor.
import torch
import torch.distributed as dist


def mean_loss(loss_sum, mask, dp_group, cp_group, dp_cp_group):
    total = (loss_sum * mask).sum()
    count = mask.sum()
    dist.all_reduce(total, group=dp_group)
    [dist.all_reduce(t, group=cp_group) for t in (total,)]
    dist.all_reduce(count, group=dp_cp_group)
    return total / count
