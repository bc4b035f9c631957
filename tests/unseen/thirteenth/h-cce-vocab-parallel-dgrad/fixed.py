"""Fused linear and cross entropy with the classifier split over the vocabulary.

Source: apple/ml-cross-entropy PR #42.
"""
import torch
import torch.distributed as dist


class VocabParallelLinearCrossEntropy(torch.autograd.Function):
    """e: (N, D), the same on all ranks of the group; c: (V / tp, D), this rank's rows."""

    @staticmethod
    def forward(ctx, e, c, targets, vocab_start, group):
        logits = (e @ c.t()).float()
        lmax = logits.max(dim=-1).values
        dist.all_reduce(lmax, op=dist.ReduceOp.MAX, group=group)
        exp = torch.exp(logits - lmax.unsqueeze(-1))
        denom = exp.sum(dim=-1)
        dist.all_reduce(denom, group=group)

        local = targets - vocab_start
        owned = (local >= 0) & (local < c.size(0))
        local = local.clamp(0, c.size(0) - 1)
        picked = logits.gather(1, local.unsqueeze(1)).squeeze(1)
        picked = torch.where(owned, picked, torch.zeros_like(picked))
        dist.all_reduce(picked, group=group)

        ctx.group = group
        ctx.save_for_backward(e, c, exp / denom.unsqueeze(-1), local, owned)
        return denom.log() + lmax - picked

    @staticmethod
    def backward(ctx, grad_loss):
        e, c, probs, local, owned = ctx.saved_tensors
        d_logits = probs.scatter_add(1, local.unsqueeze(1), -owned.to(probs.dtype).unsqueeze(1))
        d_logits = (d_logits * grad_loss.unsqueeze(1)).to(e.dtype)
        d_e = d_logits @ c
        dist.all_reduce(d_e, group=ctx.group)
        d_c = d_logits.t() @ e
        return d_e, d_c, None, None, None


def linear_cross_entropy(hidden, classifier_shard, targets, group):
    vocab_start = dist.get_rank(group) * classifier_shard.size(0)
    loss = VocabParallelLinearCrossEntropy.apply(
        hidden.flatten(0, -2), classifier_shard, targets.flatten(), vocab_start, group
    )
    return loss.mean()
