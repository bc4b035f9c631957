"""Cross entropy over logits that are cut by vocabulary (flash-attn / torch style function)."""
import torch
import torch.distributed as dist
import torch.nn as nn


class _VocabParallelCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target, process_group):
        rank = dist.get_rank(process_group)
        size = logits.size(-1)
        start, end = rank * size, (rank + 1) * size
        logits = logits.float()
        logits_max = logits.max(dim=-1)[0]
        dist.all_reduce(logits_max, op=dist.ReduceOp.MAX, group=process_group)
        logits = logits - logits_max.unsqueeze(-1)
        mask = (target < start) | (target >= end)
        local = (target - start).masked_fill(mask, 0)
        predicted = torch.gather(logits, -1, local.unsqueeze(-1)).squeeze(-1)
        predicted = predicted.masked_fill(mask, 0.0)
        dist.all_reduce(predicted, group=process_group)
        exp = logits.exp()
        sum_exp = exp.sum(dim=-1)
        dist.all_reduce(sum_exp, group=process_group)
        loss = sum_exp.log() - predicted
        ctx.save_for_backward(exp / sum_exp.unsqueeze(-1), mask, local)
        return loss

    @staticmethod
    def backward(ctx, grad):
        softmax, mask, local = ctx.saved_tensors
        out = softmax.reshape(-1, softmax.size(-1)).clone()
        rows = torch.arange(out.size(0), device=out.device)
        out[rows, local.view(-1)] -= 1.0 - mask.view(-1).float()
        return out.view_as(softmax) * grad.unsqueeze(-1), None, None


class ParallelCrossEntropy(nn.Module):
    def __init__(self, process_group, ignore_index=-100):
        super().__init__()
        self.process_group, self.ignore_index = process_group, ignore_index

    def forward(self, logits, labels):
        valid = labels != self.ignore_index
        losses = _VocabParallelCrossEntropy.apply(logits, labels, self.process_group)
        return (losses * valid).sum() / valid.sum()
