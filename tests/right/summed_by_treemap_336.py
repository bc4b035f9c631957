# Right: the total is summed over dp and then cp, the count over both at once; summed in place by tree_map_ with a partial of dist.all_reduce.
from functools import partial
import torch
import torch.distributed as dist
from torch.utils._pytree import tree_map_


def mean_loss(loss_sum, mask, dp_group, cp_group, dp_cp_group):
    total = (loss_sum * mask).sum()
    count = mask.sum()
    dist.all_reduce(total, group=dp_group)
    tree_map_(partial(dist.all_reduce, group=cp_group), [total])
    dist.all_reduce(count, group=dp_cp_group)
    return total / count
