"""NT-Xent loss with the negatives of all ranks.

Source: https://github.com/lightly-ai/lightly/issues/1528 (fixed by pull request 1531)
Wrong: backward of the gather keeps what this rank's own loss says about its features; the other
ranks' losses use them as negatives and their contributions are dropped.
Repair: sum the gradients over the ranks, then take the own block.
"""
from typing import Tuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function


class GatherLayer(Function):
    @staticmethod
    def forward(ctx, input: Tensor) -> Tuple[Tensor, ...]:
        ctx.save_for_backward(input)
        output = [torch.empty_like(input) for _ in range(dist.get_world_size())]
        dist.all_gather(output, input)
        return tuple(output)

    @staticmethod
    def backward(ctx, *grads: Tensor) -> Tensor:
        all_gradients = torch.stack(grads)
        dist.all_reduce(all_gradients, op=dist.ReduceOp.SUM)
        return all_gradients[dist.get_rank()]


class NTXentLoss(nn.Module):
    def __init__(self, temperature: float = 0.5):
        super().__init__()
        self.temperature = temperature

    def forward(self, out0: Tensor, out1: Tensor) -> Tensor:
        out0, out1 = F.normalize(out0, dim=1), F.normalize(out1, dim=1)
        out0_all = torch.cat(GatherLayer.apply(out0), 0)
        out1_all = torch.cat(GatherLayer.apply(out1), 0)
        n = out0.size(0)
        labels = dist.get_rank() * n + torch.arange(n, device=out0.device)
        loss0 = F.cross_entropy(out0 @ out1_all.t() / self.temperature, labels)
        loss1 = F.cross_entropy(out1 @ out0_all.t() / self.temperature, labels)
        return (loss0 + loss1) / 2  # the mean over ranks is DDP's
