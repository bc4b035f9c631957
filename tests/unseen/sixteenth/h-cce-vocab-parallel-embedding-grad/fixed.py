# apple/ml-cross-entropy pull request 42 (commit b616b22)
"""Linear cross-entropy with a classifier sharded over the vocabulary."""
from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass
class VocabParallelOptions:
    start: int
    stop: int
    group: dist.ProcessGroup

    @classmethod
    def from_vocab(cls, vocab_size, group):
        per_rank = vocab_size // dist.get_world_size(group)
        start = per_rank * dist.get_rank(group)
        return cls(start, start + per_rank, group)


def vp_reduce_lse(vp_lse, group):
    lse_max = vp_lse.clone()
    dist.all_reduce(lse_max, op=dist.ReduceOp.MAX, group=group)
    lse = (vp_lse - lse_max).exp()
    dist.all_reduce(lse, group=group)
    return lse_max + lse.log()


class LinearCrossEntropyFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, e, c, targets, vp_opts):
        # e: [tokens, dim] the same on every rank; c: [vocab / world, dim]
        logits = (e @ c.t()).float()
        lse = vp_reduce_lse(logits.logsumexp(dim=-1), vp_opts.group)
        is_my_target = (targets >= vp_opts.start) & (targets < vp_opts.stop)
        local = torch.where(is_my_target, targets - vp_opts.start, torch.zeros_like(targets))
        correct_logit = logits.gather(1, local.unsqueeze(1)).squeeze(1) * is_my_target
        dist.all_reduce(correct_logit, group=vp_opts.group)
        ctx.save_for_backward(e, c, lse, local, is_my_target)
        ctx.vp_opts = vp_opts
        return (lse - correct_logit).mean()

    @staticmethod
    def backward(ctx, grad_out):
        e, c, lse, local, is_my_target = ctx.saved_tensors
        d_logits = ((e @ c.t()).float() - lse.unsqueeze(1)).exp()
        d_logits.scatter_add_(1, local.unsqueeze(1), -is_my_target.float().unsqueeze(1))
        d_logits = (d_logits * (grad_out / e.size(0))).to(e.dtype)
        de = d_logits @ c
        dist.all_reduce(de, group=ctx.vp_opts.group)
        dc = d_logits.t() @ e
        return de, dc, None, None


def linear_cross_entropy(e, c, targets, vocab_size, group):
    return LinearCrossEntropyFunction.apply(e, c, targets, VocabParallelOptions.from_vocab(vocab_size, group))
