"""Cross entropy over logits partitioned along the vocabulary."""
import torch
import torch.distributed as dist
from megatron.core import parallel_state


class _VocabParallelCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, vocab_parallel_logits, target, label_smoothing=0.0):
        group = parallel_state.get_tensor_model_parallel_group()
        rank = dist.get_rank(group)

        logits_max = torch.max(vocab_parallel_logits, dim=-1)[0]
        dist.all_reduce(logits_max, op=dist.ReduceOp.MAX, group=group)
        logits = vocab_parallel_logits - logits_max.unsqueeze(dim=-1)

        partition_vocab_size = logits.size(-1)
        vocab_start_index = rank * partition_vocab_size
        vocab_end_index = vocab_start_index + partition_vocab_size

        target_mask = (target < vocab_start_index) | (target >= vocab_end_index)
        masked_target = target.clone() - vocab_start_index
        masked_target[target_mask] = 0

        logits_2d = logits.view(-1, partition_vocab_size)
        masked_target_1d = masked_target.view(-1)
        arange_1d = torch.arange(logits_2d.size(0), device=logits_2d.device)
        predicted_logits = logits_2d[arange_1d, masked_target_1d].view_as(target)
        predicted_logits = predicted_logits.masked_fill(target_mask, 0.0)
        dist.all_reduce(predicted_logits, op=dist.ReduceOp.SUM, group=group)

        exp_logits = torch.exp(logits)
        sum_exp_logits = exp_logits.sum(dim=-1)
        dist.all_reduce(sum_exp_logits, op=dist.ReduceOp.SUM, group=group)

        loss = torch.log(sum_exp_logits) - predicted_logits
        exp_logits.div_(sum_exp_logits.unsqueeze(dim=-1))

        vocab_size = exp_logits.size(-1) * dist.get_world_size(group)
        if label_smoothing > 0:
            assert 1.0 > label_smoothing > 0.0
            smoothing = label_smoothing * vocab_size / (vocab_size - 1)
            log_probs = logits - torch.log(sum_exp_logits).unsqueeze(dim=-1)
            mean_log_probs = log_probs.sum(dim=-1) / vocab_size
            dist.all_reduce(mean_log_probs, op=dist.ReduceOp.SUM, group=group)
            loss = (1.0 - smoothing) * loss - smoothing * mean_log_probs

        ctx.label_smoothing, ctx.vocab_size = label_smoothing, vocab_size
        ctx.save_for_backward(exp_logits, target_mask, masked_target_1d)
        return loss

    @staticmethod
    def backward(ctx, grad_output):
        softmax, target_mask, masked_target_1d = ctx.saved_tensors
        label_smoothing, vocab_size = ctx.label_smoothing, ctx.vocab_size

        grad_input = softmax.clone()
        grad_2d = grad_input.view(-1, softmax.size(-1))
        arange_1d = torch.arange(grad_2d.size(0), device=grad_2d.device)
        softmax_update = 1.0 - target_mask.view(-1).to(grad_2d.dtype)

        if label_smoothing > 0:
            smoothing = label_smoothing * vocab_size / (vocab_size - 1)
            grad_2d[arange_1d, masked_target_1d] -= (1.0 - smoothing) * softmax_update
            grad_2d -= smoothing / vocab_size
        else:
            grad_2d[arange_1d, masked_target_1d] -= softmax_update

        grad_input.mul_(grad_output.unsqueeze(dim=-1))
        return grad_input, None, None


def vocab_parallel_cross_entropy(vocab_parallel_logits, target, label_smoothing=0.0):
    return _VocabParallelCrossEntropy.apply(vocab_parallel_logits, target, label_smoothing)


def loss_func(vocab_parallel_logits, labels, loss_mask, label_smoothing):
    losses = vocab_parallel_cross_entropy(vocab_parallel_logits.float(), labels, label_smoothing)
    loss_mask = loss_mask.view(-1).float()
    return torch.sum(losses.view(-1) * loss_mask) / loss_mask.sum()
