"""Vocabulary-parallel cross entropy with label smoothing.

After NVIDIA/Megatron-LM issues #737 and #7464 (megatron/core/tensor_parallel/cross_entropy.py).
"""
import torch
import torch.distributed as dist


class _VocabParallelCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, vocab_parallel_logits, target, label_smoothing, tp_group):
        logits = vocab_parallel_logits.float()
        logits_max = logits.max(dim=-1)[0]
        dist.all_reduce(logits_max, op=dist.ReduceOp.MAX, group=tp_group)
        logits = logits - logits_max.unsqueeze(-1)

        partition_vocab_size = logits.size(-1)
        vocab_size = partition_vocab_size * dist.get_world_size(tp_group)
        vocab_start = dist.get_rank(tp_group) * partition_vocab_size

        # pick the logit of the target where this rank owns it
        target_mask = (target < vocab_start) | (target >= vocab_start + partition_vocab_size)
        masked_target = (target - vocab_start).masked_fill(target_mask, 0)
        predicted_logits = logits.gather(-1, masked_target.unsqueeze(-1)).squeeze(-1)
        predicted_logits = predicted_logits.masked_fill(target_mask, 0.0)
        dist.all_reduce(predicted_logits, group=tp_group)

        exp_logits = logits.exp()
        sum_exp_logits = exp_logits.sum(dim=-1)
        dist.all_reduce(sum_exp_logits, group=tp_group)
        log_z = sum_exp_logits.log()
        loss = log_z - predicted_logits

        smoothing = 0.0
        if label_smoothing > 0:
            smoothing = label_smoothing * vocab_size / (vocab_size - 1)
            log_probs = logits - log_z.unsqueeze(-1)
            mean_log_probs = log_probs.mean(dim=-1)  # BUG: mean over the local vocabulary slice
            loss = (1.0 - smoothing) * loss - smoothing * mean_log_probs

        ctx.smoothing, ctx.vocab_size = smoothing, vocab_size
        ctx.dtype = vocab_parallel_logits.dtype
        softmax = exp_logits / sum_exp_logits.unsqueeze(-1)
        ctx.save_for_backward(softmax, target_mask, masked_target)
        return loss

    @staticmethod
    def backward(ctx, grad_output):
        softmax, target_mask, masked_target = ctx.saved_tensors
        owned = (~target_mask).to(softmax.dtype).unsqueeze(-1)
        grad = softmax.scatter_add(-1, masked_target.unsqueeze(-1), -(1.0 - ctx.smoothing) * owned)
        grad = grad - ctx.smoothing / ctx.vocab_size
        grad = grad * grad_output.unsqueeze(-1)
        return grad.to(ctx.dtype), None, None, None


def vocab_parallel_cross_entropy(vocab_parallel_logits, target, tp_group, label_smoothing=0.0):
    """Per-token loss, the same on each tensor-parallel rank."""
    return _VocabParallelCrossEntropy.apply(vocab_parallel_logits, target, label_smoothing, tp_group)
