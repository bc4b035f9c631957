"""Advantages and returns of a rollout, whitened over the batch."""
# thread: THUDM/slime#2235
import torch
import torch.distributed as dist
from megatron.core import mpu


def slice_for_cp(x):
    # zigzag: chunk r and chunk 2 * cp - 1 - r of each sequence
    cp, r = mpu.get_context_parallel_world_size(), mpu.get_context_parallel_rank()
    chunks = x.chunk(2 * cp)
    return torch.cat([chunks[r], chunks[2 * cp - 1 - r]])


def masked_whiten(values, mask, group):
    stats = torch.stack([(values * mask).sum(), (values.square() * mask).sum(), mask.sum()])
    dist.all_reduce(stats, group=group)
    mean = stats[0] / stats[2]
    var = stats[1] / stats[2] - mean.square()
    return (values - mean) * torch.rsqrt(var.clamp(min=0) + 1e-8)


def compute_advantages(args, rollout):
    rewards = rollout["rewards"]
    advs = [slice_for_cp(torch.full((n,), r, device="cuda")) for r, n in zip(rewards, rollout["lengths"])]
    masks = [slice_for_cp(m.float()) for m in rollout["loss_masks"]]
    if args.normalize_advantages:
        group = mpu.get_data_parallel_group()  # BUG: leaves out the ranks that hold the rest of each sequence
        flat = masked_whiten(torch.cat(advs), torch.cat(masks), group)
        advs = list(flat.split([a.numel() for a in advs]))
    return advs
