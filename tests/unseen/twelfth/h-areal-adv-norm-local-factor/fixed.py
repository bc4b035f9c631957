"""Advantage normalisation over all data-parallel ranks for PPO."""
import torch
import torch.distributed as dist


@torch.no_grad()
def masked_normalization(x, mask, reduce_group=None, eps=1e-5, high_precision=True):
    dtype = torch.float64 if high_precision else torch.float32
    x, mask = x.to(dtype), mask.to(dtype)
    x = x * mask
    factor = mask.sum()
    x_sum = x.sum()
    x_sum_sq = x.square().sum()
    if dist.is_initialized():
        for stat in (x_sum, x_sum_sq, factor):
            dist.all_reduce(stat, op=dist.ReduceOp.SUM, group=reduce_group)
    mean = x_sum / factor
    var = x_sum_sq / factor - mean.square()
    return ((x - mean) / (var.clamp(min=0).sqrt() + eps) * mask).float()


def actor_token_loss(logprobs, old_logprobs, advantages, loss_mask, dp_group, eps_clip=0.2):
    """Per-token loss, reduced by the caller."""
    advantages = masked_normalization(advantages, loss_mask, reduce_group=dp_group)
    ratio = torch.where(loss_mask.bool(), torch.exp(logprobs - old_logprobs), 0)
    clipped = ratio.clamp(1.0 - eps_clip, 1.0 + eps_clip)
    return torch.max(-advantages * ratio, -advantages * clipped) * loss_mask
