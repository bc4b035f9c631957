"""Tensor-parallel gated MLP.

Source: InternLM/xtuner, pull request #1004 (with pytorch/pytorch issue #58005). The sum of the
partial outputs is made with torch.distributed.nn, whose backward sums the gradient over the
group again. Here the output is used alike on each tensor rank, so the incoming gradient is the
same everywhere and everything before the sum receives it tp times too large.
"""
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_nn
import torch.nn.functional as F


class _CopyToTensorRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class ParallelMLP(torch.nn.Module):
    def __init__(self, hidden_size, ffn_size, tp_group):
        super().__init__()
        local = ffn_size // dist.get_world_size(tp_group)
        self.gate = torch.nn.Linear(hidden_size, local, bias=False)
        self.up = torch.nn.Linear(hidden_size, local, bias=False)
        self.down = torch.nn.Linear(local, hidden_size, bias=False)
        self.tp_group = tp_group

    def forward(self, x):
        # x: replicated over the tensor ranks
        x = _CopyToTensorRegion.apply(x, self.tp_group)
        y = self.down(F.silu(self.gate(x)) * self.up(x))
        return dist_nn.all_reduce(y, group=self.tp_group)  # BUG


class Block(torch.nn.Module):
    def __init__(self, hidden_size, ffn_size, tp_group):
        super().__init__()
        self.norm = torch.nn.LayerNorm(hidden_size)
        self.mlp = ParallelMLP(hidden_size, ffn_size, tp_group)

    def forward(self, x):
        return x + self.mlp(self.norm(x))
