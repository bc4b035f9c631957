"""Normalise advantages over the global batch (Megatron backend)."""
import torch
import torch.distributed as dist
from megatron.core import mpu


def distributed_masked_whiten(values, mask, process_group, epsilon=1e-8):
    stats = torch.stack([(values * mask).sum(), (values.pow(2) * mask).sum(), mask.sum()])
    dist.all_reduce(stats, group=process_group)
    total, total_sq, count = stats
    mean = total / count
    var = total_sq / count - mean.pow(2)
    return (values - mean) * torch.rsqrt(var.clamp(min=0) + epsilon)


def zigzag_slice(x, cp_rank, cp_size):
    chunks = x.chunk(2 * cp_size)
    return torch.cat([chunks[cp_rank], chunks[2 * cp_size - 1 - cp_rank]])


def compute_advantages(rollout_data, normalize=True):
    cp_rank, cp_size = mpu.get_context_parallel_rank(), mpu.get_context_parallel_world_size()
    advantages = [zigzag_slice(a, cp_rank, cp_size) for a in rollout_data["advantages"]]
    masks = [zigzag_slice(m, cp_rank, cp_size) for m in rollout_data["loss_masks"]]
    if normalize:
        lengths = [a.numel() for a in advantages]
        flat = distributed_masked_whiten(
            torch.cat(advantages),
            torch.cat(masks).float(),
            process_group=mpu.get_data_parallel_group(),  # BUG: the other parts of the sequences are left out
        )
        advantages = list(flat.split(lengths))
    rollout_data["advantages"] = advantages
    return rollout_data
