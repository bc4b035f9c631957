"""Advantages that are whitened over data parallel ranks (slime style)."""
import torch
import torch.distributed as dist
from megatron.core import mpu


def distributed_masked_whiten(values, mask, process_group=None, shift_mean=True, epsilon=1e-8):
    stats = torch.stack([(values * mask).sum(), (values**2 * mask).sum(), mask.sum()]).float()
    dist.all_reduce(stats, group=process_group)
    total, total_sq, count = stats
    if count.item() == 0:
        raise ValueError("The global mask sum is zero.")
    mean = total / count
    var = total_sq / count - mean**2
    out = (values - mean) * torch.rsqrt(var + epsilon)
    return out if shift_mean else out + mean


def slice_with_cp(tokens, cp_rank, cp_size):
    """Zigzag: chunks r and 2 * cp - r - 1 of a sequence belong to cp rank r."""
    chunks = tokens.chunk(2 * cp_size)
    return torch.cat([chunks[cp_rank], chunks[2 * cp_size - cp_rank - 1]])


def compute_advantages_and_returns(args, rollout_data):
    log_probs, ref = rollout_data["log_probs"], rollout_data["ref_log_probs"]
    rewards, loss_masks = rollout_data["rewards"], rollout_data["loss_masks"]
    if log_probs is None:
        return
    cp_size = mpu.get_context_parallel_world_size()
    kl = [lp - r for lp, r in zip(log_probs, ref)]
    advantages = [torch.ones_like(k) * rewards[i] - args.kl_coef * k for i, k in enumerate(kl)]
    if args.normalize_advantages:
        all_advs = torch.cat(advantages)
        if cp_size == 1:
            all_masks = torch.cat(loss_masks)
        else:
            cp_rank = mpu.get_context_parallel_rank()
            all_masks = torch.cat([slice_with_cp(m, cp_rank, cp_size) for m in loss_masks])
        dp_group = mpu.get_data_parallel_group()  # BUG
        whitened = distributed_masked_whiten(all_advs, all_masks, process_group=dp_group)
        advantages = list(torch.split(whitened, [a.size(0) for a in advantages]))
    rollout_data["advantages"] = advantages
    rollout_data["returns"] = advantages
