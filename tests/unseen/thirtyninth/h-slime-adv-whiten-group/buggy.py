"""Advantages of a rollout batch, one zigzag slice of each response per context-parallel rank."""
import torch
import torch.distributed as dist
from megatron.core import mpu


def zigzag_slice(x, cp_size, cp_rank):
    chunks = x.chunk(2 * cp_size)
    return torch.cat([chunks[cp_rank], chunks[2 * cp_size - 1 - cp_rank]])


def distributed_masked_whiten(values, mask, process_group, epsilon=1e-8):
    stats = torch.stack([(values * mask).sum(), (values.square() * mask).sum(), mask.sum()]).double()
    dist.all_reduce(stats, group=process_group)
    mean = stats[0] / stats[2]
    var = stats[1] / stats[2] - mean.square()
    return ((values - mean) * torch.rsqrt(var + epsilon)).to(values.dtype)


def compute_advantages_and_returns(args, rollout_data):
    cp_size = mpu.get_context_parallel_world_size()
    cp_rank = mpu.get_context_parallel_rank()
    advantages, masks = [], []
    for reward, kl, mask in zip(rollout_data["rewards"], rollout_data["kl"], rollout_data["loss_masks"]):
        adv = torch.full_like(kl, reward) - args.kl_coef * kl
        if cp_size > 1:
            adv = zigzag_slice(adv, cp_size, cp_rank)
            mask = zigzag_slice(mask, cp_size, cp_rank)
        advantages.append(adv)
        masks.append(mask)

    if args.normalize_advantages:
        lengths = [a.numel() for a in advantages]
        dp_group = mpu.get_data_parallel_group()  # BUG
        flat = distributed_masked_whiten(torch.cat(advantages), torch.cat(masks).float(), dp_group)
        advantages = list(flat.split(lengths))
    rollout_data["advantages"] = advantages
    rollout_data["returns"] = advantages
