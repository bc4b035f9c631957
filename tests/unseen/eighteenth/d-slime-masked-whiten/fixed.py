"""Whiten the advantages over the data-parallel ranks.

Source: distributed masked whitening as in slime and verl (from memory). The sum of squared
deviations is taken around the mean of the rank and then added over the ranks: the spread between
the ranks is lost, the variance too small and the advantages too large.
"""
import torch
import torch.distributed as dist


def distributed_masked_whiten(values, mask, process_group, shift_mean=True, eps=1e-8):
    local_sum = (values * mask).sum()
    local_count = mask.sum()
    stats = torch.stack([local_sum, local_count.to(local_sum.dtype)])
    dist.all_reduce(stats, group=process_group)
    global_mean = stats[0] / stats[1].clamp(min=1)

    deviation = ((values - global_mean) ** 2 * mask).sum()
    dist.all_reduce(deviation, group=process_group)
    global_var = deviation / (stats[1] - 1).clamp(min=1)

    whitened = (values - global_mean) * torch.rsqrt(global_var + eps)
    if not shift_mean:
        whitened = whitened + global_mean
    return whitened


@torch.no_grad()
def prepare_advantages(rollouts, dp_group, gamma, lam):
    """rollouts: the samples of this rank with rewards, values and loss masks, all [b, t]."""
    rewards, values, mask = rollouts["rewards"], rollouts["values"], rollouts["loss_mask"]
    advantage = torch.zeros_like(rewards[:, 0])
    advantages = torch.zeros_like(rewards)
    for t in reversed(range(rewards.size(1))):
        following = values[:, t + 1] if t + 1 < rewards.size(1) else torch.zeros_like(advantage)
        delta = rewards[:, t] + gamma * following - values[:, t]
        advantage = delta + gamma * lam * advantage
        advantages[:, t] = advantage
    rollouts["returns"] = advantages + values
    rollouts["advantages"] = distributed_masked_whiten(advantages, mask, dp_group)
    return rollouts


def policy_loss(log_probs, old_log_probs, advantages, mask, clip, global_tokens, dp_size):
    # gradients are averaged over the data ranks
    ratio = torch.exp(log_probs - old_log_probs)
    objective = torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)
    return -(objective * mask).sum() / global_tokens * dp_size
