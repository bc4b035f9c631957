# thread: https://github.com/NVIDIA/Megatron-LM/issues/737
"""Cross entropy over logits whose vocabulary is split over the tensor-parallel group."""
import torch
import torch.distributed as dist


class VocabUtility:
    @staticmethod
    def range_of(per_partition, rank):
        first = rank * per_partition
        return first, first + per_partition


class _VocabParallelCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target, label_smoothing, group):
        logits = logits.float()
        logits_max = logits.max(dim=-1)[0]
        dist.all_reduce(logits_max, op=dist.ReduceOp.MAX, group=group)
        logits = logits - logits_max.unsqueeze(-1)

        partition = logits.size(-1)
        start, end = VocabUtility.range_of(partition, dist.get_rank(group))
        outside = (target < start) | (target >= end)
        masked_target = (target - start).masked_fill(outside, 0)

        predicted = logits.gather(-1, masked_target.unsqueeze(-1)).squeeze(-1)
        predicted = predicted.masked_fill(outside, 0.0)
        dist.all_reduce(predicted, group=group)

        exp_logits = logits.exp()
        sum_exp = exp_logits.sum(dim=-1)
        dist.all_reduce(sum_exp, group=group)
        loss = sum_exp.log() - predicted
        softmax = exp_logits / sum_exp.unsqueeze(-1)

        vocab_size = partition * dist.get_world_size(group)
        smoothing = 0.0
        if label_smoothing > 0:
            smoothing = label_smoothing * vocab_size / (vocab_size - 1)
            log_probs = logits - sum_exp.log().unsqueeze(-1)
            mean_log_probs = log_probs.sum(dim=-1) / vocab_size
            dist.all_reduce(mean_log_probs, group=group)
            loss = (1.0 - smoothing) * loss - smoothing * mean_log_probs

        ctx.smoothing, ctx.vocab_size = smoothing, vocab_size
        ctx.save_for_backward(softmax, outside, masked_target)
        return loss

    @staticmethod
    def backward(ctx, grad_output):
        softmax, outside, masked_target = ctx.saved_tensors
        partition = softmax.size(-1)
        grad = softmax.reshape(-1, partition).clone()
        rows = torch.arange(grad.size(0), device=grad.device)
        own = 1.0 - outside.reshape(-1).float()
        grad[rows, masked_target.reshape(-1)] -= (1.0 - ctx.smoothing) * own
        if ctx.smoothing > 0:
            grad -= ctx.smoothing / partition  # BUG
        grad = grad.view_as(softmax) * grad_output.unsqueeze(-1)
        return grad, None, None, None


def vocab_parallel_cross_entropy(logits, target, label_smoothing, group):
    return _VocabParallelCrossEntropy.apply(logits, target, label_smoothing, group)


def loss_func(loss_mask, logits, labels, args, tp_group):
    """Sum and count; both are added up over microbatches and data ranks later."""
    losses = vocab_parallel_cross_entropy(logits, labels, args.label_smoothing, tp_group)
    loss_mask = loss_mask.float()
    return (losses * loss_mask).sum(), loss_mask.sum().detach()
