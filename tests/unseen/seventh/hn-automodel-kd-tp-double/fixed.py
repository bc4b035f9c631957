"""Knowledge-distillation loss on vocabulary-sharded logits.

Source: https://github.com/NVIDIA-NeMo/Automodel/issues/3776
"""
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_nn


def _log_softmax(logits, group):
    peak = logits.detach().amax(dim=-1, keepdim=True)
    dist.all_reduce(peak, op=dist.ReduceOp.MAX, group=group)
    shifted = logits - peak
    denom = dist_nn.all_reduce(shifted.exp().sum(dim=-1, keepdim=True), group=group)
    return shifted - denom.log()


class _SumForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        y = x.clone()
        dist.all_reduce(y, group=group)
        return y

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class KDLoss(torch.nn.Module):
    def __init__(self, tp_group, ignore_index=-100):
        super().__init__()
        self.tp_group, self.ignore_index = tp_group, ignore_index

    def forward(self, student_logits, teacher_logits, labels, num_batch_labels):
        # logits: [tokens, vocab/tp]; every tensor-parallel rank gets the same loss and calls backward
        valid = labels != self.ignore_index
        with torch.no_grad():
            teacher_prob = _log_softmax(teacher_logits[valid].float(), self.tp_group).exp()
        student_logprob = _log_softmax(student_logits[valid].float(), self.tp_group)
        local = (teacher_prob * student_logprob).sum(dim=-1)
        per_token = _SumForward.apply(local, self.tp_group)
        return -per_token.sum() / num_batch_labels
