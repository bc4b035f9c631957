"""Cross entropy over a vocabulary split across the tensor-parallel group."""
import torch
from megatron.core.parallel_state import (
    get_tensor_model_parallel_group,
    get_tensor_model_parallel_rank,
    get_tensor_model_parallel_world_size,
)
from megatron.core.tensor_parallel.utils import VocabUtility


class _VocabParallelCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, vocab_parallel_logits, target, label_smoothing=0.0):
        group = get_tensor_model_parallel_group()
        logits = vocab_parallel_logits.float()
        logits_max = torch.max(logits, dim=-1)[0]
        torch.distributed.all_reduce(logits_max, op=torch.distributed.ReduceOp.MAX, group=group)
        logits = logits - logits_max.unsqueeze(dim=-1)

        partition_vocab_size = logits.size(-1)
        rank = get_tensor_model_parallel_rank()
        world_size = get_tensor_model_parallel_world_size()
        vocab_start, vocab_end = VocabUtility.vocab_range_from_per_partition_vocab_size(
            partition_vocab_size, rank, world_size
        )
        target_mask = (target < vocab_start) | (target >= vocab_end)
        masked_target = target.clone() - vocab_start
        masked_target[target_mask] = 0

        logits_2d = logits.view(-1, partition_vocab_size)
        masked_target_1d = masked_target.view(-1)
        arange_1d = torch.arange(logits_2d.size(0), device=logits_2d.device)
        predicted_logits = logits_2d[arange_1d, masked_target_1d].clone().view_as(target)
        predicted_logits[target_mask] = 0.0
        torch.distributed.all_reduce(predicted_logits, group=group)

        exp_logits = torch.exp(logits)
        sum_exp_logits = exp_logits.sum(dim=-1)
        torch.distributed.all_reduce(sum_exp_logits, group=group)
        loss = torch.log(sum_exp_logits) - predicted_logits
        log_probs = logits - torch.log(sum_exp_logits).unsqueeze(dim=-1)
        softmax = exp_logits.div_(sum_exp_logits.unsqueeze(dim=-1))

        vocab_size = softmax.size(-1) * world_size
        if label_smoothing > 0:
            assert 1.0 > label_smoothing > 0.0
            smoothing = label_smoothing * vocab_size / (vocab_size - 1)
            mean_log_probs = log_probs.sum(dim=-1)
            torch.distributed.all_reduce(mean_log_probs, group=group)
            mean_log_probs = mean_log_probs / vocab_size
            loss = (1.0 - smoothing) * loss - smoothing * mean_log_probs

        ctx.label_smoothing, ctx.vocab_size = label_smoothing, vocab_size
        ctx.input_dtype = vocab_parallel_logits.dtype
        ctx.save_for_backward(softmax, target_mask, masked_target_1d)
        return loss

    @staticmethod
    def backward(ctx, grad_output):
        softmax, target_mask, masked_target_1d = ctx.saved_tensors
        label_smoothing, vocab_size = ctx.label_smoothing, ctx.vocab_size
        grad_input = softmax.clone()
        grad_2d = grad_input.view(-1, softmax.size(-1))
        arange_1d = torch.arange(grad_2d.size(0), device=grad_2d.device)
        softmax_update = 1.0 - target_mask.view(-1).float()
        if label_smoothing > 0:
            smoothing = label_smoothing * vocab_size / (vocab_size - 1)
            grad_2d[arange_1d, masked_target_1d] -= (1.0 - smoothing) * softmax_update
            grad_2d -= smoothing / vocab_size
        else:
            grad_2d[arange_1d, masked_target_1d] -= softmax_update
        grad_input.mul_(grad_output.unsqueeze(dim=-1))
        return grad_input.to(ctx.input_dtype), None, None


def vocab_parallel_cross_entropy(vocab_parallel_logits, target, label_smoothing=0.0):
    """Per-token loss; logits are [sequence, batch, vocab / tp]."""
    return _VocabParallelCrossEntropy.apply(vocab_parallel_logits, target, label_smoothing)


def masked_lm_loss(vocab_parallel_logits, labels, loss_mask, label_smoothing):
    losses = vocab_parallel_cross_entropy(vocab_parallel_logits, labels, label_smoothing)
    loss_mask = loss_mask.float()
    return torch.sum(losses * loss_mask) / loss_mask.sum().clamp(min=1.0)
