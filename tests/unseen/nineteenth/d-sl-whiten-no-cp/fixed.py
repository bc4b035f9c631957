"""Whitened advantages of a Megatron actor. THUDM/slime, pull request #2235."""
import torch
import torch.distributed as dist
from megatron.core import mpu


def distributed_masked_whiten(values, mask, process_group, epsilon=1e-8):
    stats = torch.stack([(values * mask).sum(), (values.square() * mask).sum(), mask.sum()])
    dist.all_reduce(stats, group=process_group)
    total, total_sq, count = stats
    mean = total / count
    var = (total_sq / count - mean.square()) * count / (count - 1)
    return (values - mean) * torch.rsqrt(var + epsilon)


def slice_with_cp(x, cp_rank, cp_size):
    """Zigzag: this rank keeps chunks cp_rank and 2 * cp_size - 1 - cp_rank."""
    chunks = x.chunk(2 * cp_size)
    return torch.cat([chunks[cp_rank], chunks[2 * cp_size - 1 - cp_rank]])


def compute_advantages_and_returns(args, rollout_data):
    cp_size = mpu.get_context_parallel_world_size()
    cp_rank = mpu.get_context_parallel_rank()
    masks = rollout_data["loss_masks"]  # whole responses, padded to a multiple of 2 * cp_size
    advantages = [
        slice_with_cp(torch.full_like(m, r), cp_rank, cp_size)
        for m, r in zip(masks, rollout_data["rewards"])
    ]
    if args.normalize_advantages:
        all_advs = torch.cat(advantages)
        all_masks = torch.cat([slice_with_cp(m, cp_rank, cp_size) for m in masks])
        dp_group = mpu.get_data_parallel_group(with_context_parallel=True)
        whitened = distributed_masked_whiten(all_advs, all_masks, process_group=dp_group)
        advantages = list(torch.split(whitened, [a.numel() for a in advantages]))
    rollout_data["advantages"] = advantages
    rollout_data["returns"] = [a.clone() for a in advantages]
