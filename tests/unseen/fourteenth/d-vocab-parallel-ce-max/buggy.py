# Reduces early vocab-parallel cross entropies (ColossalAI, Megatron ports): each rank subtracts the maximum of its own
# vocabulary slice before the exponentials are summed over the ranks.
import torch
import torch.distributed as dist


class VocabParallelCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target, group):
        """logits: [tokens, vocab / tp]; target: [tokens], global ids."""
        logits_max = logits.max(dim=-1)[0]
        logits = logits - logits_max.unsqueeze(-1)  # BUG

        part = logits.shape[-1]
        start = dist.get_rank(group) * part
        outside = (target < start) | (target >= start + part)
        local_target = (target - start).masked_fill(outside, 0)
        rows = torch.arange(target.numel(), device=target.device)

        predicted = logits[rows, local_target].masked_fill(outside, 0.0)
        dist.all_reduce(predicted, group=group)

        exp = logits.exp()
        sum_exp = exp.sum(dim=-1)
        dist.all_reduce(sum_exp, group=group)

        softmax = exp / sum_exp.unsqueeze(-1)
        ctx.save_for_backward(softmax, outside, local_target)
        return sum_exp.log() - predicted

    @staticmethod
    def backward(ctx, grad_output):
        softmax, outside, local_target = ctx.saved_tensors
        grad = softmax.clone()
        rows = torch.arange(local_target.numel(), device=grad.device)
        grad[rows, local_target] -= (~outside).to(grad.dtype)
        return grad * grad_output.unsqueeze(-1), None, None


def lm_loss(hidden, vocab_weight_slice, labels, copy_to_tp, group):
    logits = torch.nn.functional.linear(copy_to_tp(hidden), vocab_weight_slice)
    losses = VocabParallelCrossEntropy.apply(logits.flatten(0, 1).float(), labels.flatten(), group)
    return losses.mean()
