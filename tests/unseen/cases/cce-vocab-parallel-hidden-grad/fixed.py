"""Fused linear + cross entropy with the classifier sharded over the vocabulary."""
# apple/ml-cross-entropy PR 42: the gradient of the embeddings must be the same (summed) on all TP ranks.
import torch
import torch.distributed as dist
from torch import nn


class VocabParallelOptions:
    def __init__(self, start, stop, group):
        self.start, self.stop, self.group = start, stop, group

    @classmethod
    def from_vocab(cls, vocab_size, group):
        world, rank = dist.get_world_size(group), dist.get_rank(group)
        per_rank = vocab_size // world
        return cls(rank * per_rank, (rank + 1) * per_rank, group)


class _VocabParallelLinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, e, c, targets, opts):
        logits = e @ c.t()
        m = logits.amax(dim=-1)
        dist.all_reduce(m, op=dist.ReduceOp.MAX, group=opts.group)
        s = (logits - m[:, None]).exp().sum(dim=-1)
        dist.all_reduce(s, op=dist.ReduceOp.SUM, group=opts.group)
        lse = s.log() + m

        in_range = (targets >= opts.start) & (targets < opts.stop)
        local = torch.where(in_range, targets - opts.start, torch.zeros_like(targets))
        dot = logits.gather(1, local[:, None]).squeeze(1).masked_fill(~in_range, 0.0)
        dist.all_reduce(dot, op=dist.ReduceOp.SUM, group=opts.group)

        ctx.save_for_backward(e, c, lse, local, in_range)
        ctx.group = opts.group
        return lse - dot

    @staticmethod
    def backward(ctx, grad_out):
        e, c, lse, local, in_range = ctx.saved_tensors
        p = (e @ c.t() - lse[:, None]).exp()
        p.scatter_add_(1, local[:, None], -in_range.to(p.dtype)[:, None])
        d_logits = p * grad_out[:, None]
        de = d_logits @ c
        dist.all_reduce(de, op=dist.ReduceOp.SUM, group=ctx.group)
        dc = d_logits.t() @ e
        return de, dc, None, None


class VocabParallelLoss(nn.Module):
    def __init__(self, classifier_shard, vocab_size, group):
        super().__init__()
        self.classifier = nn.Parameter(classifier_shard)
        self.opts = VocabParallelOptions.from_vocab(vocab_size, group)

    def forward(self, embeddings, targets):
        nll = _VocabParallelLinearCrossEntropy.apply(embeddings, self.classifier, targets, self.opts)
        return nll.mean()
