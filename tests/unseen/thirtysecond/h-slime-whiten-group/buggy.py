"""Whitening of advantages, responses sharded by context parallelism.
THUDM/slime #2235, "whiten advantages over the DP group that includes context parallel".
"""
import torch
import torch.distributed as dist
from megatron.core import mpu


def distributed_masked_whiten(values, mask, process_group, shift_mean=True, epsilon=1e-8):
    stats = torch.stack([(values * mask).sum(), (values * values * mask).sum(), mask.sum()]).float()
    dist.all_reduce(stats, op=dist.ReduceOp.SUM, group=process_group)
    total, total_sq, count = stats.unbind()
    mean = total / count.clamp(min=1)
    var = total_sq / count.clamp(min=1) - mean**2
    whitened = (values - mean) * torch.rsqrt(var + epsilon)
    return whitened if shift_mean else whitened + mean


def slice_with_cp(tensor, cp_rank, cp_size):
    """Zigzag part of one padded response that this context-parallel rank owns."""
    chunks = tensor.chunk(2 * cp_size)
    return torch.cat([chunks[cp_rank], chunks[2 * cp_size - 1 - cp_rank]])


def normalize_advantages(args, rollout_data):
    cp_size = mpu.get_context_parallel_world_size()
    cp_rank = mpu.get_context_parallel_rank()
    advantages = rollout_data["advantages"]  # already sliced by slice_with_cp
    loss_masks = rollout_data["loss_masks"]  # whole responses
    if cp_size > 1:
        loss_masks = [slice_with_cp(m, cp_rank, cp_size) for m in loss_masks]

    all_advs = torch.cat(advantages)
    all_masks = torch.cat(loss_masks)
    assert all_advs.size() == all_masks.size()
    dp_group = mpu.get_data_parallel_group()  # BUG
    whitened = distributed_masked_whiten(all_advs, all_masks, process_group=dp_group)
    rollout_data["advantages"] = list(torch.split(whitened, [a.size(0) for a in advantages]))
