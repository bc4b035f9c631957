# Reduced from Megatron-LM core/tensor_parallel/cross_entropy.py (NVIDIA/Megatron-LM issues 737, 7452, read).
# Vocabulary-parallel cross entropy with label smoothing; each rank has the logits of its vocabulary range.
# What happens: with TP > 1 the smoothing term is taken over the local range, the loss differs
# between tensor-parallel ranks.
import torch
from megatron.core.parallel_state import (
    get_tensor_model_parallel_group,
    get_tensor_model_parallel_rank,
    get_tensor_model_parallel_world_size,
)


class _VocabParallelCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, vocab_parallel_logits, target, label_smoothing=0.0):
        group = get_tensor_model_parallel_group()
        logits = vocab_parallel_logits.float()
        logits_max = logits.max(dim=-1)[0]
        torch.distributed.all_reduce(logits_max, op=torch.distributed.ReduceOp.MAX, group=group)
        logits = logits - logits_max.unsqueeze(dim=-1)

        partition_vocab_size = logits.size(-1)
        vocab_size = partition_vocab_size * get_tensor_model_parallel_world_size()
        vocab_start = get_tensor_model_parallel_rank() * partition_vocab_size
        target_mask = (target < vocab_start) | (target >= vocab_start + partition_vocab_size)
        masked_target = (target - vocab_start).masked_fill(target_mask, 0)

        predicted_logits = logits.gather(-1, masked_target.unsqueeze(-1)).squeeze(-1)
        predicted_logits = predicted_logits.masked_fill(target_mask, 0.0)
        torch.distributed.all_reduce(predicted_logits, group=group)
        exp_logits = logits.exp()
        sum_exp_logits = exp_logits.sum(dim=-1)
        torch.distributed.all_reduce(sum_exp_logits, group=group)

        loss = torch.log(sum_exp_logits) - predicted_logits
        exp_logits.div_(sum_exp_logits.unsqueeze(dim=-1))

        if label_smoothing > 0:
            smoothing = label_smoothing * vocab_size / (vocab_size - 1)
            log_probs = torch.log(exp_logits)
            mean_log_probs = log_probs.mean(dim=-1)  # BUG
            loss = (1.0 - smoothing) * loss - smoothing * mean_log_probs

        ctx.label_smoothing, ctx.vocab_size = label_smoothing, vocab_size
        ctx.save_for_backward(exp_logits, target_mask, masked_target)
        return loss

    @staticmethod
    def backward(ctx, grad_output):
        softmax, target_mask, masked_target = ctx.saved_tensors
        grad_input = softmax.clone()
        update = (~target_mask).float().unsqueeze(-1)
        smoothing = 0.0
        if ctx.label_smoothing > 0:
            smoothing = ctx.label_smoothing * ctx.vocab_size / (ctx.vocab_size - 1)
            grad_input -= smoothing / ctx.vocab_size
        grad_input.scatter_add_(-1, masked_target.unsqueeze(-1), -(1.0 - smoothing) * update)
        return grad_input * grad_output.unsqueeze(dim=-1), None, None
