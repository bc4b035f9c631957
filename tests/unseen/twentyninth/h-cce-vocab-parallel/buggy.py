"""Fused classifier and cross entropy; the classifier is split over the vocabulary in the tensor-parallel group."""
import torch
import torch.distributed as dist


class VocabParallelLinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, e, c, targets, group):
        # e: [tokens, hidden], the same on all ranks; c: [vocab / world, hidden]; targets: global ids
        start = dist.get_rank(group) * c.size(0)
        logits = e.float() @ c.float().t()

        peak = logits.max(dim=-1).values
        dist.all_reduce(peak, op=dist.ReduceOp.MAX, group=group)
        lse = torch.exp(logits - peak[:, None]).sum(dim=-1)
        dist.all_reduce(lse, op=dist.ReduceOp.SUM, group=group)
        lse = lse.log() + peak

        local = targets - start
        owned = (local >= 0) & (local < c.size(0))
        local = local.clamp(0, c.size(0) - 1)
        picked = logits.gather(1, local[:, None]).squeeze(1) * owned
        dist.all_reduce(picked, op=dist.ReduceOp.SUM, group=group)

        ctx.save_for_backward(e, c, lse, local, owned)
        ctx.group = group
        return lse - picked

    @staticmethod
    def backward(ctx, grad_loss):
        e, c, lse, local, owned = ctx.saved_tensors
        d_logits = torch.exp(e.float() @ c.float().t() - lse[:, None])
        d_logits.scatter_add_(1, local[:, None], -owned[:, None].to(d_logits.dtype))
        d_logits = d_logits * grad_loss[:, None]
        d_e = d_logits @ c.float()
        d_c = d_logits.t() @ e.float()
        return d_e.type_as(e), d_c.type_as(c), None, None  # BUG


def language_model_loss(hidden, classifier_shard, targets, group, ignore_index=-100):
    hidden, targets = hidden.flatten(0, 1), targets.flatten()
    valid = targets != ignore_index
    nll = VocabParallelLinearCrossEntropy.apply(hidden[valid], classifier_shard, targets[valid], group)
    return nll.mean()
