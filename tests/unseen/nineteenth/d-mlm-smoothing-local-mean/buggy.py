"""Vocabulary-parallel cross entropy with label smoothing. NVIDIA/Megatron-LM, issues #737 and #7452."""
import torch
import torch.distributed as dist


class _VocabParallelCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target, smoothing, group):
        # logits: [n, vocab / tp] in fp32, target: [n]
        logits_max = logits.max(dim=-1).values
        dist.all_reduce(logits_max, op=dist.ReduceOp.MAX, group=group)
        logits = logits - logits_max.unsqueeze(-1)

        partition = logits.size(-1)
        start = dist.get_rank(group) * partition
        outside = (target < start) | (target >= start + partition)
        local_target = (target - start).masked_fill(outside, 0)
        picked = logits.gather(-1, local_target.unsqueeze(-1)).squeeze(-1)
        picked = picked.masked_fill(outside, 0.0)
        dist.all_reduce(picked, group=group)

        sum_exp = logits.exp().sum(dim=-1)
        dist.all_reduce(sum_exp, group=group)
        log_probs = logits - sum_exp.log().unsqueeze(-1)
        loss = sum_exp.log() - picked

        vocab_size = partition  # BUG: size of the shard
        mean_log_probs = log_probs.sum(dim=-1) / vocab_size  # BUG: sum over the shard
        loss = (1.0 - smoothing) * loss - smoothing * mean_log_probs

        ctx.smoothing, ctx.vocab_size = smoothing, vocab_size
        ctx.save_for_backward(log_probs.exp(), outside, local_target)
        return loss

    @staticmethod
    def backward(ctx, grad_output):
        softmax, outside, local_target = ctx.saved_tensors
        one_hot = torch.zeros_like(softmax)
        one_hot.scatter_(-1, local_target.unsqueeze(-1), (~outside).to(softmax.dtype).unsqueeze(-1))
        grad = softmax - (1.0 - ctx.smoothing) * one_hot - ctx.smoothing / ctx.vocab_size
        return grad * grad_output.unsqueeze(-1), None, None, None


def smoothed_loss(logits, labels, smoothing, tp_group):
    loss = _VocabParallelCrossEntropy.apply(
        logits.float().flatten(0, 1), labels.flatten(), smoothing, tp_group
    )
    return loss.mean()
