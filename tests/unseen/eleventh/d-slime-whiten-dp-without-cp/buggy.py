"""Whitening of advantages with statistics of the whole batch.

Reduced from THUDM/slime dd7f0379c6 (fix: whiten advantages over the DP group that includes
context parallel, #2235).
"""
import torch
import torch.distributed as dist
from megatron.core import mpu

# spmd: mesh dense = dp, cp, tp


def whiten_advantages(advantages, loss_masks, epsilon=1e-8):
    """advantages, loss_masks: per sequence, the zigzag chunks which this CP rank owns."""
    all_advs = torch.cat(advantages)
    all_masks = torch.cat(loss_masks)
    # spmd: all_advs: {dp: V, cp: V, tp: R}, all_masks: {dp: V, cp: V, tp: R}

    stats = torch.stack(
        [
            (all_advs * all_masks).sum(),
            (all_advs.square() * all_masks).sum(),
            all_masks.sum(),
        ]
    )
    dist.all_reduce(stats, group=mpu.get_data_parallel_group())  # BUG: each CP rank keeps statistics of its own chunks
    total, total_sq, count = stats.unbind()
    # spmd: count: {dp: R, cp: R, tp: R}

    mean = total / count
    var = total_sq / count - mean.square()
    whitened = (all_advs - mean) * torch.rsqrt(var + epsilon)
    return list(torch.split(whitened, [a.size(0) for a in advantages]))
