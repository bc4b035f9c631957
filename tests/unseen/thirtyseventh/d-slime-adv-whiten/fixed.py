# thread: https://github.com/THUDM/slime/pull/2235
"""Token-level advantages for REINFORCE-style policy training."""
import torch
import torch.distributed as dist
from megatron.core import mpu


def slice_response(tensor, total_length, response_length):
    """Part of a response-aligned tensor that the zigzag split leaves on this rank."""
    cp_size = mpu.get_context_parallel_world_size()
    if cp_size == 1:
        return tensor
    cp_rank = mpu.get_context_parallel_rank()
    chunk = (total_length + 2 * cp_size - 1) // (2 * cp_size)
    prompt_length = total_length - response_length
    parts = []
    for index in (cp_rank, 2 * cp_size - 1 - cp_rank):
        start = max(index * chunk, prompt_length)
        end = min((index + 1) * chunk, total_length)
        if start < end:
            parts.append(tensor[start - prompt_length : end - prompt_length])
    if not parts:
        return tensor[:0]
    return torch.cat(parts)


def distributed_masked_whiten(values, mask, process_group, shift_mean=True, epsilon=1e-8):
    mask = mask.float()
    values = values.float()
    stats = torch.stack(
        [(values * mask).sum(), (values.square() * mask).sum(), mask.sum()]
    )
    dist.all_reduce(stats, group=process_group)
    total, total_sq, count = stats.unbind()
    if count.item() < 2:
        return values
    mean = total / count
    var = total_sq / count - mean.square()
    var = var * count / (count - 1)
    whitened = (values - mean) * torch.rsqrt(var + epsilon)
    if not shift_mean:
        whitened = whitened + mean
    return whitened


def compute_advantages_and_returns(args, rollout_data):
    """log_probs and ref_log_probs hold this rank's response tokens only."""
    advantages, masks = [], []
    for i, log_prob in enumerate(rollout_data["log_probs"]):
        kl = log_prob - rollout_data["ref_log_probs"][i]
        advantages.append(rollout_data["rewards"][i] - args.kl_coef * kl)
        masks.append(
            slice_response(
                rollout_data["loss_masks"][i],
                rollout_data["total_lengths"][i],
                rollout_data["response_lengths"][i],
            )
        )
    rollout_data["returns"] = [adv.clone() for adv in advantages]

    if args.normalize_advantages:
        lengths = [adv.numel() for adv in advantages]
        group = mpu.get_data_parallel_group(with_context_parallel=True)
        flat = distributed_masked_whiten(torch.cat(advantages), torch.cat(masks), group)
        advantages = list(torch.split(flat, lengths))

    rollout_data["advantages"] = advantages
    return rollout_data
