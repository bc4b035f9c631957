import torch
import torch.distributed as dist


def token_loss(logits, target, start, group):
    """Logits are of [tokens, classes of this rank]; the mean is over tokens."""
    largest = logits.detach().max(-1).values
    dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
    shifted = logits - largest.unsqueeze(-1)
    denom = shifted.exp().sum(-1)
    dist.all_reduce(denom, group=group)
    mine = (target >= start) & (target < start + logits.shape[-1])
    local = torch.where(mine, target - start, 0)
    picked = torch.take_along_dim(shifted, local.unsqueeze(-1), -1).squeeze(-1) * mine
    dist.all_reduce(picked, group=group)
    losses = denom.log() - picked
    return losses.view(-1, 1024).mean(-1)
