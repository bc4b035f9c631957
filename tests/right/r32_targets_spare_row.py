"""Targets of other ranks are put in a row of their own, which is cut off again."""

import torch
import torch.distributed as dist


class Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target, group):
        size = logits.shape[-1]
        first = dist.get_rank(group) * size
        last = first + size
        mask = (target < first) | (target >= last)
        local = target - first + 1
        local[mask] = 0
        padded = torch.nn.functional.pad(logits, (1, 0))
        picked = padded.gather(-1, local.unsqueeze(-1)).squeeze(-1)
        picked[mask] = 0.0
        dist.all_reduce(picked, group=group)
        exp = logits.exp()
        total = exp.sum(-1)
        dist.all_reduce(total, group=group)
        ctx.save_for_backward(exp / total.unsqueeze(-1), local)
        return total.log() - picked

    @staticmethod
    def backward(ctx, grad):
        probs, local = ctx.saved_tensors
        padded = torch.nn.functional.pad(probs, (1, 0))
        rows = torch.arange(padded.shape[0], device=padded.device)
        padded[rows, local] -= 1.0
        return padded[:, 1:] * grad.unsqueeze(-1), None, None
