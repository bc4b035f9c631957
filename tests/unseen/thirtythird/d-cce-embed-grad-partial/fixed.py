"""Linear cross entropy with the classifier split by vocabulary over tensor-parallel ranks.

Source: https://github.com/apple/ml-cross-entropy/pull/42
Wrong: backward returns the gradient of the embeddings that this rank's vocabulary shard causes;
the embeddings are the same on all ranks and need the sum over the shards.
Repair: all-reduce the embedding gradient over the vocabulary-parallel group.
"""
from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass
class VocabParallelOptions:
    start: int
    stop: int
    group: dist.ProcessGroup


class VocabParallelLinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, e, c, targets, vp_opts):
        # e: [n, d] on all ranks; c: [stop - start, d]
        logits = e @ c.t()
        peak = logits.amax(dim=-1)
        dist.all_reduce(peak, op=dist.ReduceOp.MAX, group=vp_opts.group)
        sum_exp = (logits - peak[:, None]).exp().sum(dim=-1)
        owned = (targets >= vp_opts.start) & (targets < vp_opts.stop)
        index = (targets - vp_opts.start).clamp(0, c.size(0) - 1)
        picked = torch.where(owned, logits.gather(1, index[:, None]).squeeze(1), 0.0)
        both = torch.stack([sum_exp, picked])
        dist.all_reduce(both, group=vp_opts.group)
        lse = both[0].log() + peak
        ctx.save_for_backward(e, c, index, owned, lse)
        ctx.vp_opts = vp_opts
        return (lse - both[1]).mean()

    @staticmethod
    def backward(ctx, grad_loss):
        e, c, index, owned, lse = ctx.saved_tensors
        d_logits = (e @ c.t() - lse[:, None]).exp()
        d_logits.scatter_add_(1, index[:, None], -owned[:, None].to(d_logits.dtype))
        d_logits = d_logits * (grad_loss / e.size(0))
        de = d_logits @ c
        dc = d_logits.t() @ e
        dist.all_reduce(de, group=ctx.vp_opts.group)
        return de, dc, None, None


def linear_cross_entropy(e, c, targets, vp_opts: VocabParallelOptions):
    return VocabParallelLinearCrossEntropy.apply(e, c, targets, vp_opts)
