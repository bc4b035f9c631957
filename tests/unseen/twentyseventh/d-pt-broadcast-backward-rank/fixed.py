"""Differentiable broadcast inside a process group."""
import torch
import torch.distributed as dist
from torch import nn


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, src, group, tensor):
        ctx.src, ctx.group = src, group
        ctx.rank = dist.get_rank()
        tensor = tensor.clone()
        dist.broadcast(tensor, src, group=group)
        return tensor

    @staticmethod
    def backward(ctx, grad_output):
        grad = grad_output.contiguous().clone()
        dist.reduce(grad, dst=ctx.src, op=dist.ReduceOp.SUM, group=ctx.group)
        if ctx.rank != ctx.src:
            grad.zero_()
        return None, None, grad


class PromptEncoder(nn.Module):
    """The first rank of each node encodes the prompt for all ranks of the node."""

    def __init__(self, encoder, hidden_size, node_group):
        super().__init__()
        self.encoder, self.hidden_size, self.group = encoder, hidden_size, node_group
        self.src = dist.get_global_rank(node_group, 0)

    def forward(self, prompt):
        if dist.get_rank() == self.src:
            h = self.encoder(prompt)
        else:
            h = torch.empty(*prompt.shape, self.hidden_size, device=prompt.device, requires_grad=True)
        return _Broadcast.apply(self.src, self.group, h)
