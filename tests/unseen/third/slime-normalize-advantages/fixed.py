"""Advantage normalisation for policy-gradient training on Megatron."""
# Source: THUDM/slime pull request 2235 (confirmed from the thread)
import torch
import torch.distributed as dist
from megatron.core import mpu


def slice_with_cp(values, cp_rank, cp_size):
    """This rank's two chunks of one sequence in zigzag order."""
    chunks = values.chunk(2 * cp_size)
    return torch.cat([chunks[cp_rank], chunks[2 * cp_size - 1 - cp_rank]])


def distributed_masked_whiten(values, mask, process_group, epsilon=1e-8):
    stats = torch.stack([(values * mask).sum(), (values.square() * mask).sum(), mask.sum()]).double()
    dist.all_reduce(stats, group=process_group)
    mean = stats[0] / stats[2]
    var = stats[1] / stats[2] - mean.square()
    return ((values - mean) * torch.rsqrt(var + epsilon)).to(values.dtype)


def compute_advantages(args, rollout):
    """rollout: the samples of this data-parallel rank, whole sequences."""
    cp_rank, cp_size = mpu.get_context_parallel_rank(), mpu.get_context_parallel_world_size()
    advantages, masks = [], []
    for reward, loss_mask in zip(rollout["rewards"], rollout["loss_masks"]):
        full = torch.full_like(loss_mask, reward, dtype=torch.float32)
        advantages.append(slice_with_cp(full, cp_rank, cp_size))
        masks.append(slice_with_cp(loss_mask, cp_rank, cp_size))
    if args.normalize_advantages:
        dp_group = mpu.get_data_parallel_group(with_context_parallel=True)
        lengths = [a.numel() for a in advantages]
        flat = distributed_masked_whiten(torch.cat(advantages), torch.cat(masks), dp_group)
        advantages = list(flat.split(lengths))
    return advantages, masks


def policy_loss(log_probs, old_log_probs, advantages, masks, total_tokens, clip=0.2):
    ratio = (torch.cat(log_probs) - torch.cat(old_log_probs)).exp()
    adv = torch.cat(advantages)
    loss = -torch.minimum(ratio * adv, ratio.clamp(1 - clip, 1 + clip) * adv)
    return (loss * torch.cat(masks)).sum() / total_tokens
