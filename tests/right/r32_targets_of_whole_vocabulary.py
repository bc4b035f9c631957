"""Every rank has all classes: no target is masked."""

import torch
import torch.distributed as dist


class Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target):
        probs = logits.softmax(-1)
        rows = torch.arange(target.shape[0], device=target.device)
        loss = -probs[rows, target].log()
        ctx.save_for_backward(probs, target)
        return loss

    @staticmethod
    def backward(ctx, grad):
        probs, target = ctx.saved_tensors
        rows = torch.arange(probs.shape[0], device=probs.device)
        probs[rows, target] -= 1.0
        return probs * grad.unsqueeze(-1), None
