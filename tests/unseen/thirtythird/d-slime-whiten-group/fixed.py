"""Advantage whitening for PPO-type estimators.

Source: https://github.com/THUDM/slime/pull/2235
Wrong: with context parallelism each rank has slices of its sequences, but mean and variance are
reduced over the group without the context-parallel ranks: parts of one sequence are whitened with
different statistics.
Repair: the data-parallel group that includes context parallelism.
"""
import torch
import torch.distributed as dist
from megatron.core import mpu


def distributed_masked_whiten(values, mask, process_group=None, epsilon=1e-8):
    stats = torch.stack([(values * mask).sum(), (values**2 * mask).sum(), mask.sum().to(values.dtype)])
    dist.all_reduce(stats, op=dist.ReduceOp.SUM, group=process_group)
    total, total_sq, n = stats
    mean = total / n
    var = (total_sq / n - mean**2) * n / (n - 1)
    return (values - mean) * torch.rsqrt(var + epsilon)


def slice_with_cp(x, cp_rank, cp_size):
    """Zigzag: chunks cp_rank and 2 * cp_size - 1 - cp_rank."""
    chunks = x.chunk(2 * cp_size)
    return torch.cat([chunks[cp_rank], chunks[2 * cp_size - 1 - cp_rank]])


def compute_advantages_and_returns(args, rollout_data):
    cp_size, cp_rank = mpu.get_context_parallel_world_size(), mpu.get_context_parallel_rank()
    advantages = rollout_data["advantages"]  # one tensor for each sequence, this rank's slice
    masks = rollout_data["loss_masks"]  # whole sequences
    if args.normalize_advantages:
        all_advs = torch.cat(advantages)
        if cp_size > 1:
            masks = [slice_with_cp(m, cp_rank, cp_size) for m in masks]
        all_masks = torch.cat(masks)
        dp_group = mpu.get_data_parallel_group(with_context_parallel=True)
        whitened = distributed_masked_whiten(all_advs, all_masks, process_group=dp_group)
        advantages = list(torch.split(whitened, [a.size(0) for a in advantages]))
    rollout_data["advantages"] = advantages
    rollout_data["returns"] = advantages
