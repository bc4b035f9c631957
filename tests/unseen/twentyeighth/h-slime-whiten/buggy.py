"""Advantage computation of the Megatron actor."""
import torch
import torch.distributed as dist
from megatron.core import mpu


def get_zigzag_offsets(total_length, response_length):
    """Token ranges (inside the response) held by this context-parallel rank."""
    cp_rank = mpu.get_context_parallel_rank()
    cp_size = mpu.get_context_parallel_world_size()
    prompt_length = total_length - response_length
    chunk = (total_length + 2 * cp_size - 1) // (2 * cp_size)
    ranges = []
    for index in (cp_rank, 2 * cp_size - cp_rank - 1):
        begin = max(index * chunk, prompt_length - 1)
        end = min((index + 1) * chunk, total_length - 1)
        begin, end = begin - (prompt_length - 1), end - (prompt_length - 1)
        ranges.append((begin, max(begin, end)))
    return ranges


def slice_response(tensor, total_length, response_length):
    if mpu.get_context_parallel_world_size() == 1:
        return tensor
    return torch.cat([tensor[b:e] for b, e in get_zigzag_offsets(total_length, response_length)])


@torch.no_grad()
def distributed_masked_whiten(values, mask, process_group=None, epsilon=1e-8):
    """Zero mean, unit variance over the masked entries of all ranks in the group."""
    mask = mask.to(values.dtype)
    stats = torch.stack([
        (values * mask).sum(),
        (values.pow(2) * mask).sum(),
        mask.sum(),
    ]).to(torch.float64)
    dist.all_reduce(stats, group=process_group)
    total, total_sq, count = stats.unbind()
    if count.item() == 0:
        raise ValueError("the mask selects no token on any rank")
    mean = total / count
    var = total_sq / count - mean**2
    if count.item() > 1:
        var = var * count / (count - 1)
    return ((values - mean) * torch.rsqrt(var + epsilon)).to(values.dtype)


def compute_advantages(args, rollout_data):
    """Fill ``rollout_data["advantages"]``: one tensor a sample, already cut for CP."""
    rewards = rollout_data["rewards"]
    masks = rollout_data["loss_masks"]
    total_lengths = rollout_data["total_lengths"]
    response_lengths = rollout_data["response_lengths"]
    kl = rollout_data["kl"]

    advantages, local_masks = [], []
    for i, (total, response) in enumerate(zip(total_lengths, response_lengths)):
        local_mask = slice_response(masks[i], total, response)
        advantage = torch.full_like(kl[i], rewards[i]) - args.kl_coef * kl[i]
        advantages.append(advantage)
        local_masks.append(local_mask)

    if args.normalize_advantages:
        flat = torch.cat(advantages)
        flat_mask = torch.cat(local_masks)
        dp_group = mpu.get_data_parallel_group()  # BUG
        whitened = distributed_masked_whiten(flat, flat_mask, process_group=dp_group)
        advantages = list(torch.split(whitened, [a.numel() for a in advantages]))

    rollout_data["advantages"] = advantages
    return rollout_data
