import torch
import torch.distributed.nn.functional as dist_nn


def mae(pred, target, mask, sp_group, sp_size):
    # the sampler masks 75% of each rank's patches: all ranks count as many
    loss = ((pred - target).pow(2).mean(-1) * mask).sum() / mask.sum()
    return sum(dist_nn.all_gather(loss, group=sp_group)) / sp_size
