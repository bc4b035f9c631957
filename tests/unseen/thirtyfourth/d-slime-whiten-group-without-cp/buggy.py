# THUDM/slime, pull request 2235 - https://github.com/THUDM/slime/pull/2235 (read, also distributed_utils.py)
# Each context-parallel rank holds other tokens of every response, but the whitening statistics are reduced
# over the data-parallel group without CP: each CP slice is normalised with its own mean and variance.
"""Normalise advantages over the global batch with context parallelism."""
import torch
import torch.distributed as dist
from megatron.core import mpu


def distributed_masked_whiten(values, mask, process_group, epsilon=1e-8):
    stats = torch.stack([(values * mask).sum(), (values.square() * mask).sum(), mask.sum()]).float()
    dist.all_reduce(stats, group=process_group)
    total, total_sq, count = stats.unbind()
    mean = total / count
    var = (total_sq / count - mean.square()) * count / (count - 1).clamp(min=1)
    return (values - mean) * torch.rsqrt(var + epsilon)


def slice_with_cp(tensor):
    """The two zig-zag chunks of this context-parallel rank."""
    cp_size, cp_rank = mpu.get_context_parallel_world_size(), mpu.get_context_parallel_rank()
    chunks = tensor.chunk(2 * cp_size)
    return torch.cat([chunks[cp_rank], chunks[2 * cp_size - 1 - cp_rank]])


def compute_advantages(rollout_data, normalize_advantages):
    advantages = [slice_with_cp(a) for a in rollout_data["advantages"]]
    masks = [slice_with_cp(m) for m in rollout_data["loss_masks"]]
    if normalize_advantages:
        lengths = [a.numel() for a in advantages]
        group = mpu.get_data_parallel_group()  # BUG: leaves out the other slices of the same responses
        white = distributed_masked_whiten(torch.cat(advantages), torch.cat(masks), group)
        advantages = list(white.split(lengths))
    rollout_data["advantages"] = advantages
    return rollout_data
