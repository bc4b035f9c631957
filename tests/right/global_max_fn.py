"""Maximum over ranks with a gradient for the ranks that hold it, and a distributed logsumexp."""
import torch
import torch.distributed as dist


class DistLogSumExp(torch.autograd.Function):
    """Over the last dim, which is split over the group. The result is the same on all ranks."""

    @staticmethod
    def forward(ctx, x, group):
        top = x.amax(-1, keepdim=True)
        dist.all_reduce(top, op=dist.ReduceOp.MAX, group=group)
        e = (x - top).exp()
        total = e.sum(-1, keepdim=True)
        dist.all_reduce(total, group=group)
        ctx.save_for_backward(e / total)
        return (total.log() + top).squeeze(-1)

    @staticmethod
    def backward(ctx, grad):
        (p,) = ctx.saved_tensors
        return p * grad[..., None], None


class SumForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def log_prob(logits, ids, group):
    part = logits.shape[-1]
    start = dist.get_rank(group) * part
    local = ids - start
    here = (local >= 0) & (local < part)
    picked = logits.gather(-1, local.clamp(0, part - 1)[..., None]).squeeze(-1)
    picked = torch.where(here, picked, torch.zeros_like(picked))
    return SumForward.apply(picked, group) - DistLogSumExp.apply(logits, group)


def entropy(logits, group):
    with torch.no_grad():
        lse = DistLogSumExp.apply(logits, group)
        logp = logits - lse[..., None]
        h = -(logp.exp() * logp).sum(-1)
        dist.all_reduce(h, group=group)
    return h


def policy_loss(logits, ids, old, adv, mask, tp_group):
    logp = log_prob(logits, ids, tp_group)
    ratio = (logp - old).exp()
    loss = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv)
    return (loss * mask).sum() / mask.sum(), (entropy(logits, tp_group) * mask).sum() / mask.sum()
