# thread: https://github.com/pytorch/torchtitan/pull/2106
"""Experts with biases whose inner dimension is split over tensor-parallel ranks."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class CopyIn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class SumOut(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class Experts(nn.Module):
    """Inputs, routing and output biases are the same on every rank of the group."""

    def __init__(self, num_experts, dim, inner, group):
        super().__init__()
        self.group, self.tp_size = group, dist.get_world_size(group)
        part = inner // self.tp_size
        self.up = nn.Parameter(torch.empty(num_experts, dim, part))
        self.up_bias = nn.Parameter(torch.zeros(num_experts, part))
        self.down = nn.Parameter(torch.empty(num_experts, part, dim))
        self.down_bias = nn.Parameter(torch.zeros(num_experts, dim))

    def load(self, full_up, full_down):
        rank = dist.get_rank(self.group)
        self.up.data.copy_(full_up.chunk(self.tp_size, dim=2)[rank])
        self.down.data.copy_(full_down.chunk(self.tp_size, dim=1)[rank])

    def forward(self, x, indices, probs):
        """x: [tokens, dim]; indices, probs: [tokens, top_k]."""
        x = CopyIn.apply(x, self.group)
        probs = CopyIn.apply(probs, self.group)
        out = torch.zeros_like(x)
        for e in range(self.up.shape[0]):
            token, slot = (indices == e).nonzero(as_tuple=True)
            h = F.silu(x[token] @ self.up[e] + self.up_bias[e])
            bias = self.down_bias[e] / self.tp_size  # BUG
            y = h @ self.down[e] + bias
            out = out.index_add(0, token, y * probs[token, slot].unsqueeze(-1))
        return SumOut.apply(out, self.group)


class MoE(nn.Module):
    def __init__(self, num_experts, dim, inner, top_k, group):
        super().__init__()
        self.top_k = top_k
        self.router = nn.Linear(dim, num_experts)
        self.experts = Experts(num_experts, dim, inner, group)

    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        scores, indices = self.router(x).topk(self.top_k, dim=-1)
        return self.experts(x, indices, scores.softmax(dim=-1)).view(shape)


def train_step(model, batch, target, optimizer, dp_group):
    F.mse_loss(model(batch), target).backward()
    for p in model.parameters():
        dist.all_reduce(p.grad, group=dp_group)
        p.grad.div_(dist.get_world_size(dp_group))
    optimizer.step()
    optimizer.zero_grad()
