"""Linear cross entropy with the classifier split along the vocabulary."""
# thread: apple/ml-cross-entropy#42
import torch
import torch.distributed as dist


class VocabParallelLinearCE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, e, c, targets, start, group):
        # e: [tokens, dim], the same on all ranks; c: this rank's rows of the classifier
        logits = (e @ c.t()).float()
        top = logits.max(dim=-1).values
        dist.all_reduce(top, op=dist.ReduceOp.MAX, group=group)
        probs = torch.exp(logits - top[:, None])
        total = probs.sum(dim=-1)
        dist.all_reduce(total, group=group)
        local = targets - start
        mine = (local >= 0) & (local < c.size(0))
        local = local.clamp(0, c.size(0) - 1)
        picked = torch.where(mine, logits.gather(1, local[:, None]).squeeze(1) - top, 0.0)
        dist.all_reduce(picked, group=group)
        ctx.save_for_backward(e, c, probs / total[:, None], local, mine)
        ctx.group = group
        return total.log() - picked

    @staticmethod
    def backward(ctx, grad):
        e, c, softmax, local, mine = ctx.saved_tensors
        d_logits = softmax.scatter_add(1, local[:, None], -mine.float()[:, None])
        d_logits = (d_logits * grad[:, None]).to(e.dtype)
        d_e = d_logits @ c  # BUG: covers only this rank's part of the vocabulary
        d_c = d_logits.t() @ e
        return d_e, d_c, None, None, None


def lm_loss(hidden, lm_head, labels, tp_rank, tp_group):
    # hidden: output of the last (tensor-parallel) block, replicated over tp_group
    start = tp_rank * lm_head.weight.size(0)
    return VocabParallelLinearCE.apply(hidden.flatten(0, 1), lm_head.weight, labels.flatten(), start, tp_group).mean()
