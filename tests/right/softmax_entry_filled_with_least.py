"""The entries of other ranks are minus infinity, so that the largest over ranks is the one that a rank has."""

import torch
import torch.distributed as dist


class LogProbs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target, vocab_start, vocab_end, group):
        logits_max = torch.amax(logits, dim=-1)
        dist.all_reduce(logits_max, op=dist.ReduceOp.MAX, group=group)
        shifted = logits - logits_max.unsqueeze(-1)
        sum_exp = shifted.exp().sum(dim=-1)
        dist.all_reduce(sum_exp, op=dist.ReduceOp.SUM, group=group)

        outside = (target < vocab_start) | (target >= vocab_end)
        index = (target - vocab_start).masked_fill(outside, 0)
        entry = torch.gather(shifted, -1, index.unsqueeze(-1)).squeeze(-1)
        entry[outside] = float("-inf")
        dist.all_reduce(entry, op=dist.ReduceOp.MAX, group=group)

        ctx.save_for_backward(shifted, sum_exp, index, outside)
        return entry - sum_exp.log()

    @staticmethod
    def backward(ctx, grad):
        shifted, sum_exp, index, outside = ctx.saved_tensors
        probs = shifted.exp() / sum_exp.unsqueeze(-1)
        out = -probs * grad.unsqueeze(-1)
        own = grad.masked_fill(outside, 0.0).unsqueeze(-1)
        out.scatter_add_(-1, index.unsqueeze(-1), own)
        return out, None, None, None, None
