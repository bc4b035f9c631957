"""Cross entropy on vocabulary-sharded logits with label smoothing."""
import torch
import torch.distributed as dist
from apex.transformer.parallel_state import (
    get_tensor_model_parallel_group,
    get_tensor_model_parallel_rank,
    get_tensor_model_parallel_world_size,
)


class _VocabParallelCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target, label_smoothing=0.0):
        group = get_tensor_model_parallel_group()
        logits_max = logits.max(dim=-1).values
        dist.all_reduce(logits_max, op=dist.ReduceOp.MAX, group=group)
        logits = logits - logits_max.unsqueeze(-1)

        part = logits.size(-1)
        start = get_tensor_model_parallel_rank() * part
        target_mask = (target < start) | (target >= start + part)
        masked_target = (target - start).masked_fill(target_mask, 0)
        predicted = logits.gather(-1, masked_target.unsqueeze(-1)).squeeze(-1)
        predicted = predicted.masked_fill(target_mask, 0.0)
        dist.all_reduce(predicted, group=group)

        sum_exp = logits.exp().sum(dim=-1)
        dist.all_reduce(sum_exp, group=group)
        loss = sum_exp.log() - predicted
        probs = logits.exp() / sum_exp.unsqueeze(-1)

        vocab_size = probs.size(-1)  # BUG
        if label_smoothing > 0:
            smoothing = label_smoothing * vocab_size / (vocab_size - 1)
            log_probs = logits - sum_exp.log().unsqueeze(-1)
            mean_log_probs = log_probs.mean(dim=-1)  # BUG
            loss = (1.0 - smoothing) * loss - smoothing * mean_log_probs

        ctx.label_smoothing, ctx.vocab_size = label_smoothing, vocab_size
        ctx.save_for_backward(probs, target_mask, masked_target)
        return loss

    @staticmethod
    def backward(ctx, grad_output):
        probs, target_mask, masked_target = ctx.saved_tensors
        smoothing = ctx.label_smoothing * ctx.vocab_size / (ctx.vocab_size - 1)
        hit = torch.zeros_like(probs).scatter_(-1, masked_target.unsqueeze(-1), 1.0)
        hit = hit * (~target_mask).unsqueeze(-1)
        grad = probs - (1.0 - smoothing) * hit - smoothing / ctx.vocab_size
        return grad * grad_output.unsqueeze(-1), None, None


def vocab_parallel_cross_entropy(logits, target, label_smoothing=0.0):
    return _VocabParallelCrossEntropy.apply(logits, target, label_smoothing)
