"""Advantage whitening for RL training with context parallelism (zigzag slices)."""
import torch
import torch.distributed as dist
from megatron.core import mpu


def distributed_masked_whiten(values, mask, process_group, shift_mean=True, epsilon=1e-8):
    stats = torch.stack([(values * mask).sum(), ((values ** 2) * mask).sum(), mask.sum().float()]).float()
    dist.all_reduce(stats, group=process_group)
    global_sum, global_sum_sq, global_mask_sum = stats
    mean = global_sum / global_mask_sum
    var = global_sum_sq / global_mask_sum - mean ** 2
    whitened = (values - mean) * torch.rsqrt(var + epsilon)
    return whitened if shift_mean else whitened + mean


def slice_with_cp(full: torch.Tensor, total_length: int, response_length: int) -> torch.Tensor:
    """The response tokens inside the two zigzag chunks of this context parallel rank."""
    cp_rank, cp_size = mpu.get_context_parallel_rank(), mpu.get_context_parallel_world_size()
    chunk = (total_length + 2 * cp_size - 1) // (2 * cp_size)
    prompt = total_length - response_length
    parts = []
    for c in (cp_rank, 2 * cp_size - 1 - cp_rank):
        start, end = max(c * chunk - prompt, 0), max(min((c + 1) * chunk, total_length) - prompt, 0)
        parts.append(full[start:end])
    return torch.cat(parts)


def normalize_advantages(rollout_data):
    advantages = [
        slice_with_cp(a, t, r)
        for a, t, r in zip(rollout_data["advantages"], rollout_data["total_lengths"], rollout_data["response_lengths"])
    ]
    masks = [
        slice_with_cp(m, t, r)
        for m, t, r in zip(rollout_data["loss_masks"], rollout_data["total_lengths"], rollout_data["response_lengths"])
    ]
    group = mpu.get_data_parallel_group(with_context_parallel=True)
    whitened = distributed_masked_whiten(torch.cat(advantages), torch.cat(masks), process_group=group)
    rollout_data["advantages"] = list(torch.split(whitened, [a.size(0) for a in advantages]))
