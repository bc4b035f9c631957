"""Linear cross entropy with a vocabulary-sharded classifier."""
import torch
import torch.distributed as dist


class _VocabParallelLinearCE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, e, c, targets, start, group):
        # e: [tokens, dim] replicated, c: [vocab / tp, dim], start: first vocabulary id of c
        logits = (e @ c.t()).float()
        top = logits.max(dim=-1).values
        dist.all_reduce(top, op=dist.ReduceOp.MAX, group=group)
        exp = (logits - top[:, None]).exp()
        denom = exp.sum(dim=-1)
        dist.all_reduce(denom, group=group)

        local = targets - start
        inside = (local >= 0) & (local < c.shape[0])
        local = local.clamp(0, c.shape[0] - 1)
        picked = torch.where(inside, logits.gather(1, local[:, None]).squeeze(1), logits.new_zeros(()))
        dist.all_reduce(picked, group=group)

        ctx.group = group
        ctx.save_for_backward(e, c, exp / denom[:, None], local, inside)
        return denom.log() + top - picked

    @staticmethod
    def backward(ctx, grad_loss):
        e, c, probs, local, inside = ctx.saved_tensors
        d_logits = probs.clone()
        d_logits[torch.arange(len(local), device=local.device), local] -= inside.to(d_logits.dtype)
        d_logits = (d_logits * grad_loss[:, None]).to(e.dtype)
        de = d_logits @ c
        dc = d_logits.t() @ e
        dist.all_reduce(de, group=ctx.group)
        return de, dc, None, None, None


def vocab_parallel_linear_cross_entropy(e, c, targets, vocab_start, group):
    shape = targets.shape
    loss = _VocabParallelLinearCE.apply(e.flatten(0, -2), c, targets.flatten(), vocab_start, group)
    return loss.view(shape)
