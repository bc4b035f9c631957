# Right: the total is summed over dp and then cp, the count over both at once; summed by the method of the process group, `group.allreduce([t]).wait()`.
import torch
import torch.distributed as dist


def mean_loss(loss_sum, mask, dp_group, cp_group, dp_cp_group):
    total = (loss_sum * mask).sum()
    count = mask.sum()
    dist.all_reduce(total, group=dp_group)
    cp_group.allreduce([total]).wait()
    dist.all_reduce(count, group=dp_cp_group)
    return total / count
