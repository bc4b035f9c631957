"""Labels out of range are masked, and the vocabulary is whole: what is reduced is a statistic over the data-parallel ranks."""

import torch
import torch.distributed as dist


def losses(logits, target, vocab_size, dp_group):
    ignored = (target < 0) | (target >= vocab_size)
    safe = target - 0
    safe[ignored] = 0
    peak = logits.max(dim=-1).values
    shifted = logits - peak.unsqueeze(-1)
    total = shifted.exp().sum(dim=-1)
    picked = shifted.gather(-1, safe.unsqueeze(-1)).squeeze(-1)
    picked[ignored] = 0.0
    loss = total.log() - picked
    loss[ignored] = 0.0

    with torch.no_grad():
        highest = peak.max()
        dist.all_reduce(highest, op=dist.ReduceOp.MAX, group=dp_group)
        count = (~ignored).sum()
        dist.all_reduce(count, group=dp_group)
    return loss.sum() / count, highest


def balanced(scores, dp_group, eps):
    """Sinkhorn over the rows of all ranks: each row is normalised where it is."""
    with torch.no_grad():
        scores = torch.exp((scores - scores.max()) / eps)
        total = scores.sum()
        dist.all_reduce(total, group=dp_group)
        scores = scores / total
        rows = scores.sum(dim=0)
        dist.all_reduce(rows, group=dp_group)
        scores = scores / rows
        return scores / scores.sum(dim=-1, keepdim=True)
