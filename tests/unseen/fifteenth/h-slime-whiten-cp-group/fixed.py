# Reduced from slime (THUDM/slime pull request 2235, read), backends/megatron_utils/loss.py.
# Each context-parallel rank holds a zigzag slice of every response, with its slice of the loss mask.
# `--normalize-advantages` whitens the advantages with statistics that should cover the whole batch;
# mpu.get_data_parallel_group() has with_context_parallel=False by default.
# What happens: each CP rank applies another affine map to its part of the same sequence.
import torch
import torch.distributed as dist
from megatron.core import mpu

from slime.backends.megatron_utils.cp_utils import slice_log_prob_with_cp


def distributed_masked_whiten(values, mask, process_group, shift_mean=True, epsilon=1e-8):
    stats = torch.stack(
        [(values * mask).sum(), ((values**2) * mask).sum(), mask.sum()]
    ).to(torch.float32)
    dist.all_reduce(stats, group=process_group)
    global_sum, global_sum_sq, global_mask_sum = stats
    global_mean = global_sum / global_mask_sum
    global_var = global_sum_sq / global_mask_sum - global_mean**2
    whitened = (values - global_mean) * torch.rsqrt(global_var + epsilon)
    return whitened if shift_mean else whitened + global_mean


def compute_advantages_and_returns(args, rollout_data):
    advantages = rollout_data["advantages"]  # list of tensors, each the slice of this CP rank
    loss_masks = rollout_data["loss_masks"]  # list of full-length masks
    if not args.normalize_advantages:
        return
    all_advs = torch.cat(advantages)
    if mpu.get_context_parallel_world_size() == 1:
        all_masks = torch.cat(loss_masks)
    else:
        all_masks = torch.cat(
            [
                slice_log_prob_with_cp(mask, total_len, response_len)
                for mask, total_len, response_len in zip(
                    loss_masks, rollout_data["total_lengths"], rollout_data["response_lengths"]
                )
            ]
        )
    dp_group = mpu.get_data_parallel_group(with_context_parallel=True)
    whitened = distributed_masked_whiten(all_advs, all_masks, process_group=dp_group)
    rollout_data["advantages"] = list(torch.split(whitened, [a.numel() for a in advantages]))
