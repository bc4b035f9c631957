# ml-cross-entropy (cut cross entropy), pull 42: with a vocab-parallel classifier each rank only has the part of the
# gradient of e that its own vocabulary rows give; the parts have to be summed over the vocab-parallel group.
"""Linear cross entropy with the vocabulary split over a process group."""
from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass
class VocabParallelOptions:
    start: int
    stop: int
    group: dist.ProcessGroup | None = None


class LinearCrossEntropyFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, e, c, targets, vp_opts):
        logits = (e @ c.t()).float()  # e: the same on all ranks of the group, c: rows start..stop of the classifier
        logits_max = logits.amax(dim=-1)
        dist.all_reduce(logits_max, op=dist.ReduceOp.MAX, group=vp_opts.group)
        sum_exp = (logits - logits_max[:, None]).exp().sum(dim=-1)
        dist.all_reduce(sum_exp, group=vp_opts.group)
        lse = sum_exp.log() + logits_max
        mine = (targets >= vp_opts.start) & (targets < vp_opts.stop)
        local = torch.where(mine, targets - vp_opts.start, 0)
        correct_logit = torch.where(mine, logits.gather(-1, local[:, None]).squeeze(-1), 0.0)
        dist.all_reduce(correct_logit, group=vp_opts.group)
        ctx.save_for_backward(e, c, lse, mine, local)
        ctx.pg = vp_opts.group
        return lse - correct_logit

    @staticmethod
    def backward(ctx, grad_out):
        e, c, lse, mine, local = ctx.saved_tensors
        d_logits = ((e @ c.t()).float() - lse[:, None]).exp()
        d_logits.scatter_add_(1, local[:, None], -mine.to(d_logits.dtype)[:, None])
        d_logits = d_logits * grad_out[:, None]
        de = d_logits @ c.float()
        return de.to(e.dtype), (d_logits.t() @ e.float()).to(c.dtype), None, None  # BUG: de of these rows only
