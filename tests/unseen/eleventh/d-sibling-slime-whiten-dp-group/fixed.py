"""Whitening of advantages over the global batch, with context parallelism."""
import torch
import torch.distributed as dist
from megatron.core import mpu

# spmd: mesh dense = dp, cp, tp


def distributed_masked_whiten(values, mask, process_group, epsilon=1e-8):
    stats = torch.stack([mask.sum(), (values * mask).sum(), (values.pow(2) * mask).sum()])
    dist.all_reduce(stats, group=process_group)
    count, total, total_sq = stats.unbind()
    mean = total / count
    var = total_sq / count - mean.pow(2)
    return (values - mean) * torch.rsqrt(var + epsilon)


# spmd: advantages: {dp: V, cp: V}, loss_masks: {dp: V, cp: V} -> {dp: V, cp: V}
def normalize_advantages(advantages, loss_masks):
    # only the zigzag chunks of the responses that this context-parallel rank owns
    dp_group = mpu.get_data_parallel_group(with_context_parallel=True)
    return distributed_masked_whiten(advantages, loss_masks, process_group=dp_group)
