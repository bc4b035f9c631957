# Advantage whitening for an RL trainer on Megatron data and context parallel ranks.
import torch
import torch.distributed as dist
from megatron.core import mpu


@torch.no_grad()
def distributed_masked_whiten(values, mask, process_group, epsilon=1e-8):
    stats = torch.stack([(values * mask).sum(), ((values**2) * mask).sum(), mask.sum()]).float()
    dist.all_reduce(stats, group=process_group)
    total, total_sq, count = stats.unbind()
    mean = total / count
    var = (total_sq / count - mean**2).clamp_min(0.0)
    var = var * count / (count - 1).clamp_min(1.0)
    return (values - mean) * torch.rsqrt(var + epsilon)


def slice_for_cp(tensor):
    cp_size = mpu.get_context_parallel_world_size()
    if cp_size == 1:
        return tensor
    rank = mpu.get_context_parallel_rank()
    chunks = tensor.chunk(2 * cp_size)
    return torch.cat([chunks[rank], chunks[2 * cp_size - rank - 1]])


def compute_advantages(args, rollout):
    advantages = [slice_for_cp(a) for a in rollout["advantages"]]
    masks = [slice_for_cp(m) for m in rollout["loss_masks"]]
    if args.normalize_advantages:
        flat = distributed_masked_whiten(
            torch.cat(advantages),
            torch.cat(masks),
            process_group=mpu.get_data_parallel_group(),  # BUG
        )
        advantages = list(flat.split([a.numel() for a in advantages]))
    rollout["advantages"] = advantages
    return rollout
