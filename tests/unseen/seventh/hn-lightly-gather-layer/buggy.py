"""NT-Xent loss with negatives of all ranks.

Source: https://github.com/lightly-ai/lightly/issues/1528
"""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class GatherLayer(torch.autograd.Function):
    """Gather tensors from all processes, supporting backward propagation."""

    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        output = [torch.empty_like(input) for _ in range(dist.get_world_size())]
        dist.all_gather(output, input)
        return tuple(output)

    @staticmethod
    def backward(ctx, *grads):
        (input,) = ctx.saved_tensors
        grad_out = torch.empty_like(input)
        grad_out[:] = grads[dist.get_rank()]  # BUG
        return grad_out


class NTXentLoss(nn.Module):
    def __init__(self, temperature=0.5):
        super().__init__()
        self.temperature = temperature

    def forward(self, out0, out1):
        # mean over the rows of this rank; DDP averages over the ranks
        out0, out1 = F.normalize(out0, dim=1), F.normalize(out1, dim=1)
        out0_large = torch.cat(GatherLayer.apply(out0), 0)
        out1_large = torch.cat(GatherLayer.apply(out1), 0)
        labels = torch.arange(len(out0), device=out0.device) + dist.get_rank() * len(out0)
        logits_01 = out0 @ out1_large.t() / self.temperature
        logits_10 = out1 @ out0_large.t() / self.temperature
        return F.cross_entropy(logits_01, labels) + F.cross_entropy(logits_10, labels)
