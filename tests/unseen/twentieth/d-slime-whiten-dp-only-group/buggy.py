# slime, pull 2235: the advantages of a rank cover its context-parallel slices only, so the statistics of the whitening
# have to be reduced over the data-parallel group that includes context parallelism.
"""Whitening of advantages over data-parallel ranks."""
import torch
import torch.distributed as dist
from megatron.core import mpu

from slime.backends.megatron_utils.cp_utils import slice_log_prob_with_cp


def distributed_masked_whiten(values, mask, process_group, epsilon=1e-8):
    stats = torch.stack([(values * mask).sum(), (values**2 * mask).sum(), mask.sum().to(values.dtype)])
    dist.all_reduce(stats, group=process_group)
    global_sum, global_sum_sq, global_mask_sum = stats
    mean = global_sum / global_mask_sum
    var = global_sum_sq / global_mask_sum - mean**2
    return (values - mean) * torch.rsqrt(var + epsilon)


@torch.no_grad()
def normalize_advantages(rollout_data):
    total_lengths, response_lengths = rollout_data["total_lengths"], rollout_data["response_lengths"]
    mask_chunks = [  # like the advantages: the tokens that this CP rank owns (zigzag)
        slice_log_prob_with_cp(m, t, r)
        for m, t, r in zip(rollout_data["loss_masks"], total_lengths, response_lengths)
    ]
    advantages = rollout_data["advantages"]
    group = mpu.get_data_parallel_group()  # BUG: each CP rank whitens its slices with statistics of its own
    whitened = distributed_masked_whiten(torch.cat(advantages), torch.cat(mask_chunks), process_group=group)
    rollout_data["advantages"] = list(torch.split(whitened, [a.size(0) for a in advantages]))
