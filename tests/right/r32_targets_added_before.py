"""The forward adds what the backward takes off too much."""

import torch
import torch.distributed as dist


class Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target, group):
        size = logits.shape[-1]
        first = dist.get_rank(group) * size
        last = first + size
        mask = (target < first) | (target >= last)
        local = target.clone() - first
        local[mask] = 0
        rows = torch.arange(target.numel(), device=target.device)
        picked = logits.view(-1, size)[rows, local.view(-1)].view_as(target)
        picked[mask] = 0.0
        dist.all_reduce(picked, group=group)
        exp = logits.exp()
        total = exp.sum(-1)
        dist.all_reduce(total, group=group)
        probs = exp / total.unsqueeze(-1)
        rest = probs.clone()
        rest[mask, 0] += 1.0
        ctx.save_for_backward(rest, local.view(-1))
        return total.log() - picked

    @staticmethod
    def backward(ctx, grad):
        probs, local = ctx.saved_tensors
        flat = probs.view(-1, probs.shape[-1])
        rows = torch.arange(flat.shape[0], device=flat.device)
        flat[rows, local] -= 1.0
        return probs * grad.unsqueeze(-1), None, None
