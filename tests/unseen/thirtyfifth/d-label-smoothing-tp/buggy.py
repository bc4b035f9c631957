"""Vocabulary-parallel cross entropy with label smoothing."""
# thread: NVIDIA/Megatron-LM#7452
import torch
import torch.distributed as dist


class VocabParallelCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target, start, smoothing, group):
        # logits: [tokens, vocab / tp] in float32
        top = logits.max(dim=-1, keepdim=True).values
        dist.all_reduce(top, op=dist.ReduceOp.MAX, group=group)
        logits = logits - top
        exp = logits.exp()
        total = exp.sum(dim=-1, keepdim=True)
        dist.all_reduce(total, group=group)
        log_probs = logits - total.log()

        local = target - start
        mine = (local >= 0) & (local < logits.size(-1))
        local = torch.where(mine, local, 0)
        picked = log_probs.gather(1, local[:, None]).squeeze(1) * mine
        dist.all_reduce(picked, group=group)

        vocab = log_probs.size(-1)
        mean_log_prob = log_probs.sum(dim=-1) / vocab  # BUG: mean over this rank's slice of the vocabulary
        ctx.save_for_backward(exp / total, local, mine)
        ctx.smoothing, ctx.vocab = smoothing, vocab
        return -(1 - smoothing) * picked - smoothing * mean_log_prob

    @staticmethod
    def backward(ctx, grad):
        softmax, local, mine = ctx.saved_tensors
        d = softmax - ctx.smoothing / ctx.vocab
        d = d.scatter_add(1, local[:, None], -(1 - ctx.smoothing) * mine[:, None].to(d.dtype))
        return d * grad[:, None], None, None, None, None
