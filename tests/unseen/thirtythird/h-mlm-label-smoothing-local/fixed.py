"""Vocabulary-parallel cross entropy with label smoothing.

Source: https://github.com/NVIDIA/Megatron-LM/issues/737 (also issue 7452, finding 1)
Wrong: the smoothing term is the mean over this rank's part of the vocabulary; each TP rank gets
another loss and another gradient.
Repair: mean over the whole vocabulary: sum over the shards, divide by the full size.
"""
import torch
import torch.distributed as dist
from megatron.core.parallel_state import (
    get_tensor_model_parallel_group,
    get_tensor_model_parallel_rank,
)


class _VocabParallelCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, vocab_parallel_logits, target, label_smoothing=0.0):
        group = get_tensor_model_parallel_group()
        logits = vocab_parallel_logits.float()
        logits_max = logits.amax(dim=-1)
        dist.all_reduce(logits_max, op=dist.ReduceOp.MAX, group=group)
        logits = logits - logits_max.unsqueeze(-1)
        v = logits.size(-1)
        start = get_tensor_model_parallel_rank() * v
        target_mask = (target < start) | (target >= start + v)
        masked_target = (target - start).masked_fill(target_mask, 0)
        predicted = logits.gather(-1, masked_target.unsqueeze(-1)).squeeze(-1).masked_fill(target_mask, 0.0)
        exp_logits = logits.exp()
        sum_exp = exp_logits.sum(dim=-1)
        dist.all_reduce(predicted, group=group)
        dist.all_reduce(sum_exp, group=group)
        loss = sum_exp.log() - predicted
        exp_logits = exp_logits / sum_exp.unsqueeze(-1)

        vocab_size = v * dist.get_world_size(group)
        if label_smoothing > 0:
            log_probs = exp_logits.log()
            mean_log_probs = log_probs.sum(dim=-1)
            dist.all_reduce(mean_log_probs, group=group)
            mean_log_probs = mean_log_probs / vocab_size
            smoothing = label_smoothing * vocab_size / (vocab_size - 1)
            loss = (1.0 - smoothing) * loss - smoothing * mean_log_probs
        ctx.label_smoothing, ctx.vocab_size = label_smoothing, vocab_size
        ctx.save_for_backward(exp_logits, target_mask, masked_target)
        return loss

    @staticmethod
    def backward(ctx, grad_output):
        softmax, target_mask, masked_target = ctx.saved_tensors
        hit = 1.0 - target_mask.float().unsqueeze(-1)
        grad = softmax.clone()
        if ctx.label_smoothing > 0:
            smoothing = ctx.label_smoothing * ctx.vocab_size / (ctx.vocab_size - 1)
            grad.scatter_add_(-1, masked_target.unsqueeze(-1), -(1.0 - smoothing) * hit)
            grad -= smoothing / ctx.vocab_size
        else:
            grad.scatter_add_(-1, masked_target.unsqueeze(-1), -hit)
        return grad * grad_output.unsqueeze(-1), None, None
