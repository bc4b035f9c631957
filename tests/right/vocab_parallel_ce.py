"""Vocabulary-parallel cross-entropy with its own backward."""
import torch
import torch.distributed as dist


class VocabParallelCE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target, group):
        part = logits.size(-1)
        start = dist.get_rank(group) * part
        highest = logits.amax(-1)
        dist.all_reduce(highest, op=dist.ReduceOp.MAX, group=group)
        shifted = logits.float() - highest[..., None]
        outside = (target < start) | (target >= start + part)
        local = (target - start).masked_fill(outside, 0)
        picked = shifted.gather(-1, local[..., None]).squeeze(-1)
        picked = picked.masked_fill(outside, 0.0)
        dist.all_reduce(picked, group=group)
        exp = shifted.exp()
        total = exp.sum(-1)
        dist.all_reduce(total, group=group)
        ctx.save_for_backward(exp / total[..., None], outside, local)
        return total.log() - picked

    @staticmethod
    def backward(ctx, grad):
        probs, outside, local = ctx.saved_tensors
        g = probs.clone()
        update = 1.0 - outside.float()
        g.scatter_add_(-1, local[..., None], -update[..., None])
        return g * grad[..., None], None, None


def masked_loss(logits, labels, mask, tp_group, dp_group):
    nll = VocabParallelCE.apply(logits, labels, tp_group)
    total = (nll * mask).sum()
    count = mask.sum()
    dist.all_reduce(count, group=dp_group)
    # the data-parallel wrapper averages: the factor undoes it
    return total / count * dist.get_world_size(dp_group)
