import torch
import torch.distributed as dist


def per_sequence_mean(token_losses, dp_group, dp_cp_group):
    """Sum over the tokens of each sequence, mean over sequences; cp ranks share their sequences."""
    total = token_losses.sum()
    count = torch.tensor(float(token_losses.shape[0]), device=total.device)
    dist.all_reduce(total, group=dp_cp_group)
    dist.all_reduce(count, group=dp_group)
    return total / count
