"""Label smoothing on vocab-sharded logits (NVIDIA/Megatron-LM#737)."""
import torch
import torch.distributed as dist


class _VocabParallelCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target, label_smoothing, tp_group):
        # logits: [n, vocab/tp]
        logits = logits.float()
        v, rank = logits.size(-1), tp_group.rank()
        vocab_size = v * tp_group.size()
        peak = logits.max(dim=-1).values
        dist.all_reduce(peak, op=dist.ReduceOp.MAX, group=tp_group)
        logits = logits - peak.unsqueeze(-1)
        mine = (target >= rank * v) & (target < (rank + 1) * v)
        local = (target - rank * v).clamp(0, v - 1)
        predicted = logits.gather(-1, local.unsqueeze(-1)).squeeze(-1) * mine
        dist.all_reduce(predicted, group=tp_group)
        sum_exp = logits.exp().sum(dim=-1)
        dist.all_reduce(sum_exp, group=tp_group)
        log_probs = logits - sum_exp.log().unsqueeze(-1)
        smoothing = label_smoothing * vocab_size / (vocab_size - 1)
        mean_log_probs = log_probs.mean(dim=-1)  # BUG: mean over this rank's part of the vocabulary
        ctx.save_for_backward(log_probs.exp(), local, mine)
        ctx.smoothing, ctx.vocab_size = smoothing, vocab_size
        return (1.0 - smoothing) * (sum_exp.log() - predicted) - smoothing * mean_log_probs

    @staticmethod
    def backward(ctx, grad_output):
        grad, local, mine = ctx.saved_tensors
        rows = torch.arange(grad.size(0), device=grad.device)
        grad[rows, local] -= (1.0 - ctx.smoothing) * mine
        grad -= ctx.smoothing / ctx.vocab_size
        return grad * grad_output.unsqueeze(-1), None, None, None
