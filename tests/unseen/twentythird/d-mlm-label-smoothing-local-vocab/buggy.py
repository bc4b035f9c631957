"""Vocab-parallel cross entropy with label smoothing."""
import torch
import torch.distributed as dist
from megatron.core.parallel_state import (
    get_tensor_model_parallel_group,
    get_tensor_model_parallel_rank,
    get_tensor_model_parallel_world_size,
)


class _VocabParallelCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, vocab_parallel_logits, target, label_smoothing=0.0):
        group = get_tensor_model_parallel_group()
        logits_max = vocab_parallel_logits.max(dim=-1)[0]
        dist.all_reduce(logits_max, op=dist.ReduceOp.MAX, group=group)
        logits = vocab_parallel_logits - logits_max.unsqueeze(-1)

        partition = logits.size(-1)
        vocab_size = partition * get_tensor_model_parallel_world_size()
        start = get_tensor_model_parallel_rank() * partition
        target_mask = (target < start) | (target >= start + partition)
        masked_target = (target - start).masked_fill(target_mask, 0)
        predicted = logits.gather(-1, masked_target.unsqueeze(-1)).squeeze(-1)
        predicted = predicted.masked_fill(target_mask, 0.0)
        dist.all_reduce(predicted, group=group)
        sum_exp = logits.exp().sum(dim=-1)
        dist.all_reduce(sum_exp, group=group)

        log_probs = logits - sum_exp.log().unsqueeze(-1)
        loss = sum_exp.log() - predicted
        if label_smoothing > 0:
            mean_log_probs = log_probs.mean(dim=-1)  # BUG: mean over this rank's part of the vocabulary
            loss = (1.0 - label_smoothing) * loss - label_smoothing * mean_log_probs
        ctx.label_smoothing, ctx.vocab_size = label_smoothing, vocab_size
        ctx.save_for_backward(log_probs.exp(), target_mask, masked_target)
        return loss

    @staticmethod
    def backward(ctx, grad_output):
        softmax, target_mask, masked_target = ctx.saved_tensors
        hit = (~target_mask).to(softmax.dtype) * (1.0 - ctx.label_smoothing)
        grad = softmax - ctx.label_smoothing / ctx.vocab_size
        grad.scatter_add_(-1, masked_target.unsqueeze(-1), -hit.unsqueeze(-1))
        return grad * grad_output.unsqueeze(-1), None, None
