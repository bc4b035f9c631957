# slime dd7f0379c (#2235)
"""Normalise advantages over the tokens of the whole rollout batch."""
import torch
import torch.distributed as dist
from megatron.core import mpu


def distributed_masked_whiten(values, mask, process_group, epsilon=1e-8):
    local = torch.stack([(values * mask).sum(), (values**2 * mask).sum(), mask.sum()]).float()
    dist.all_reduce(local, group=process_group)
    total, total_sq, count = local
    mean = total / count
    var = total_sq / count - mean**2
    return (values - mean) * torch.rsqrt(var + epsilon)


@torch.no_grad()
def compute_advantages_and_returns(args, rollout_data):
    # with context parallelism every entry holds only the response tokens this cp rank owns
    advantages = rollout_data["advantages"]
    if args.normalize_advantages:
        all_advs = torch.cat(advantages)
        all_masks = torch.cat(rollout_data["local_loss_masks"])
        assert all_advs.size() == all_masks.size()
        group = mpu.get_data_parallel_group()  # BUG: leaves out the other cp ranks of the same sequences
        whitened = distributed_masked_whiten(all_advs, all_masks, process_group=group)
        advantages = list(torch.split(whitened, [a.size(0) for a in advantages]))
    rollout_data["advantages"] = advantages
