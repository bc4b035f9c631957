# slime dd7f0379c (PR #2235): advantages are whitened with statistics of the data-parallel group without
# context parallelism, so the slices of one sequence get different means and variances.
import torch
import torch.distributed as dist
from megatron.core import mpu


def distributed_masked_whiten(values, mask, process_group=None, epsilon: float = 1e-8):
    """Whitens the local values with the mean and variance over all ranks of process_group."""
    mask = mask.to(values.dtype)
    stats_tensor = torch.stack([(values * mask).sum(), ((values**2) * mask).sum(), mask.sum()]).float()
    dist.all_reduce(stats_tensor, group=process_group)
    global_sum, global_sum_sq, global_mask_sum = stats_tensor
    global_mean = global_sum / global_mask_sum
    global_var = global_sum_sq / global_mask_sum - global_mean**2
    if global_mask_sum.item() >= 2:
        global_var = global_var * (global_mask_sum / (global_mask_sum - 1))
    return (values - global_mean) * torch.rsqrt(global_var + epsilon)


def slice_with_cp(full: torch.Tensor) -> torch.Tensor:
    """Head and tail chunk of this context-parallel rank."""
    cp_size, cp_rank = mpu.get_context_parallel_world_size(), mpu.get_context_parallel_rank()
    chunks = full.chunk(2 * cp_size)
    return torch.cat([chunks[cp_rank], chunks[2 * cp_size - 1 - cp_rank]])


def compute_advantages_and_returns(args, rollout_data):
    """rewards: per sample; log_probs, ref_log_probs: local tokens; loss_masks: the whole padded samples."""
    advantages = []
    for reward, log_prob, ref in zip(
        rollout_data["rewards"], rollout_data["log_probs"], rollout_data["ref_log_probs"]
    ):
        advantages.append(reward - args.kl_coef * (log_prob - ref))

    if args.normalize_advantages:
        all_advs = torch.cat(advantages)
        all_masks = torch.cat([slice_with_cp(mask) for mask in rollout_data["loss_masks"]])
        assert all_advs.size() == all_masks.size()
        whitened = distributed_masked_whiten(all_advs, all_masks, process_group=mpu.get_data_parallel_group())  # BUG
        advantages = list(torch.split(whitened, [a.size(0) for a in advantages]))

    rollout_data["advantages"] = advantages
    rollout_data["returns"] = advantages
