# apple/ml-cross-entropy, pull request 42 - https://github.com/apple/ml-cross-entropy/pull/42 (read, also cce.py)
# Vocab-parallel linear cross entropy: each rank computes the hidden-state gradient from its part of the
# vocabulary only. It replaces a column-parallel linear, so it has to sum the gradient over the group.
"""Cross entropy of e @ c.T with the classifier rows sharded over a group."""
import torch
import torch.distributed as dist
from cut_cross_entropy.vocab_parallel.utils import (
    VocabParallelOptions,
    vp_reduce_correct_logit,
    vp_reduce_lse,
)


class LinearCrossEntropyFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, e, c, targets, vp_opts: VocabParallelOptions):
        # e: [tokens, hidden], equal on all ranks; c: [vocab / ranks, hidden]
        logits = e.float() @ c.float().t()
        lse = vp_reduce_lse(torch.logsumexp(logits, dim=-1), pg=vp_opts.group)
        mine = (targets >= vp_opts.start) & (targets < vp_opts.stop)
        local = (targets - vp_opts.start).clamp(0, c.size(0) - 1)
        picked = logits.gather(1, local[:, None]).squeeze(1) * mine
        picked = vp_reduce_correct_logit(picked, pg=vp_opts.group, dtype=lse.dtype)
        ctx.save_for_backward(e, c, lse, local, mine)
        ctx.vp_opts = vp_opts
        return lse - picked

    @staticmethod
    def backward(ctx, grad_out):
        e, c, lse, local, mine = ctx.saved_tensors
        d_logits = torch.exp(e.float() @ c.float().t() - lse[:, None])
        d_logits[torch.arange(e.size(0), device=e.device), local] -= mine.to(d_logits.dtype)
        d_logits = d_logits * grad_out[:, None]
        de = d_logits @ c.float()
        dist.all_reduce(de, group=ctx.vp_opts.group)
        dc = d_logits.t() @ e.float()
        return de.to(e.dtype), dc.to(c.dtype), None, None


def vocab_parallel_loss(hidden, classifier_shard, targets, vp_opts):
    return LinearCrossEntropyFunction.apply(hidden, classifier_shard, targets, vp_opts).mean()
